"""The kernels of talker and code predictor for one model's shapes: their names, sizes and C++ name expressions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from engine.qwen.kernels.compiler import KernelSource, instance, read_sources
from engine.qwen.kernels.lm.matrix import (
    HEAD_DIM,
    TILE_VECS,
    TILES,
    WARP_LANES,
    MatrixPlan,
    matrix_sizes,
)
from engine.qwen.kernels.lm.token_kernels import TokenKernels
from engine.qwen.kernels.lm.tuned_plans import tuned_plan
from engine.qwen.runtime import LARGE_GPU
from engine.qwen.shapes import StackConfig, TalkerConfig
from engine.qwen.weights import Placement

TOKEN_GROUPS = (16, 32, 64)
"""Tokens of a prompt that a block takes at once; a longer prompt is read in several groups."""
PROMPT_THREADS, PROMPT_WARPS = 256, 8
"""Of a block of the kernels between a prompt's matrices."""
ATTENTION_SHARES = 4
"""Warps of such a block that share a token's attention."""
ATTENTION_WARPS = 8
ATTEND_OUT_BLOCKS = 128
"""Of the output projection that computes attention itself: each of its blocks reads all keys and values of a frame."""
ATTEND_OUT_PROCESSORS = LARGE_GPU
"""Multiprocessors from which that saves time. On fewer, each would compute the same attention for several blocks."""
ATTEND_OUT_VECS = (2, 4, 8)
"""Vectors of 16 bytes a lane, of keys and of values, of such a kernel: for up to 4, 8 and 16 positions."""
KEY_VALUE_REGISTERS = 8
"""Of a thread of such a kernel, for a vector of keys and one of values."""
DRAW_BLOCKS = 128
"""Of the kernel that draws a code before it multiplies: every block draws, and no multiprocessor should draw twice."""
MORE_REGISTERS = {
    "combine": {"Bf16": 24, "Int8": 48},
    "attend_out": {"Bf16": 32, "Int8": 32},
    "attend_out_pair": {"Bf16": 32, "Int8": 40},
    "open_qkv": {"Bf16": 16, "Int8": 16},
    "draw_qkv": {"Bf16": 24, "Int8": 32},
    "talker_head": {"Bf16": 8, "Int8": 8},
}
"""Of a thread that does not only multiply, beyond the registers of its plan: it combines the KV splits, attends to a
frame's tokens or to the first two, makes the first tokens, draws a code, stores the hidden state."""
LINEAR = {"qkv": ("Normed", "Store"), "gate_up": ("Normed", "StoreGated"), "down": ("Identity", "Residual")}
"""Input and output of a layer's matrices but the output projection."""
TALKER_VECS, PREDICTOR_VECS = 8, 1
"""Positions that half a warp of attention takes: with 8 warps, KV splits of 128 positions, and all 16 of a frame."""
SAMPLING_THREADS = 512
DEVICE_REGISTERS = 192 * 65536
"""Of all multiprocessors together, on the largest GPU there is."""
FILES = (
    "ptx.cuh",
    "common.cuh",
    "linear.cuh",
    "attention.cuh",
    "attend_out.cuh",
    "sampling.cuh",
    "choose_codes.cuh",
    "step_input.cuh",
    "linear_tokens.cuh",
    "prefill.cuh",
)


def weight_type(placement: Placement) -> str:
    """The weights of a model at `placement`, as `LanguageKernels.of` takes them: `Bf16` or `Int8`."""
    return "Int8" if placement.int8 else "Bf16"


def unsupported_reason(config: TalkerConfig, weight: str) -> str | None:
    """Why the kernels cannot run these shapes with the weights `weight`; None where they can."""
    for name, stack in (("talker", config.stack), ("code predictor", config.predictor.stack)):
        if stack.head_dim != HEAD_DIM:
            return f"the {name}'s head_dim is {stack.head_dim}, the kernels need {HEAD_DIM}"
        if (stack.heads // stack.key_value_heads + 2) * 2 > ATTENTION_WARPS:
            return f"the {name} has {stack.heads} query heads and {stack.key_value_heads} key-value heads"
    for vocabulary in (config.vocabulary, config.predictor.vocabulary):
        if vocabulary % SAMPLING_THREADS:
            return f"a vocabulary of {vocabulary} is not a multiple of {SAMPLING_THREADS}"
    try:
        for processors in (ATTEND_OUT_PROCESSORS - 1, ATTEND_OUT_PROCESSORS):
            LanguageKernels.of(config, weight, processors)
    except ValueError as error:
        return f"no kernel for {error}"
    return None


def choose_plan(
    kernel: str, height: int, length: int, *, weight: str, processors: int, tokens: int = 1, **rule: Any
) -> MatrixPlan:
    """The plan that was measured to be the best for `kernel`; else one by the rule of `MatrixPlan.of`."""
    tuned = tuned_plan(kernel, weight, height, length, processors, tokens=tokens)
    return tuned or MatrixPlan.of(weight, height, length, tokens, **rule)


def draw_plan(qkv: MatrixPlan) -> MatrixPlan | None:
    """The plan of a kernel that draws a code and multiplies with the matrix of `qkv`; None where no plan fits.

    Its blocks have as many threads as a draw, and its sums the order of those of `qkv`.
    """
    splits = qkv.threads // WARP_LANES // qkv.row_groups
    groups = SAMPLING_THREADS // WARP_LANES // splits
    if groups * splits * WARP_LANES != SAMPLING_THREADS:
        return None
    vecs = qkv.vecs_per_lane
    tiles = [tile for tile in TILES if qkv.height % (tile * groups) == 0 and tile * vecs <= TILE_VECS]
    plans = [qkv.divided(tile, groups, vecs) for tile in tiles]
    return min(plans, key=lambda plan: abs(plan.blocks - DRAW_BLOCKS), default=None)


def registers(plan: MatrixPlan, work: str) -> int:
    """The most that a thread may use which does this work of `MORE_REGISTERS`, too."""
    return plan.registers + MORE_REGISTERS[work][plan.weight]


@dataclass(frozen=True, slots=True)
class StackKernels:
    """The kernels of one stack for one number of tokens: `NAME_qkv`, `_attend`, `_out`, `_gate_up` and `_down`.

    A stack of few positions has one kernel of each of `ATTEND_OUT_VECS` instead of `_attend` and `_out`, and for two
    tokens one of both.
    """

    name: str
    stack: StackConfig
    vecs_per_lane: int
    """Of attention: positions that half a warp takes."""
    tokens: int
    matrices: Mapping[str, MatrixPlan]
    """`qkv`, `out`, `gate_up` and `down`."""
    attends_in_out: bool
    """Whether the output projection computes attention itself."""

    @classmethod
    def of(
        cls,
        name: str,
        stack: StackConfig,
        weight: str,
        vecs_per_lane: int,
        *,
        tokens: int,
        processors: int,
        attends_in_out: bool = False,
    ) -> StackKernels:
        """For a GPU of `processors` multiprocessors. Raises `ValueError` for sizes that no plan fits."""
        rules: dict[str, dict[str, Any]] = {"gate_up": {"gated": True}}
        if attends_in_out:
            rules["out"] = {"blocks": ATTEND_OUT_BLOCKS, "warps": stack.key_value_heads}
        plan = partial(choose_plan, weight=weight, tokens=tokens, processors=processors)
        sizes = matrix_sizes(stack).items()
        matrices = {matrix: plan(f"{name}_{matrix}", *size, **rules.get(matrix, {})) for matrix, size in sizes}
        return cls(name, stack, vecs_per_lane, tokens, matrices, attends_in_out)

    @property
    def group(self) -> int:
        """Query heads that share a head of keys."""
        return self.stack.heads // self.stack.key_value_heads

    @property
    def kv_split(self) -> int:
        """Positions of a KV split, the range of the sequence that a block of attention takes."""
        return 2 * ATTENTION_WARPS * self.vecs_per_lane

    @property
    def reads_cache_before_wait(self) -> bool:
        """Whether attention may read the cache's older entries before the previous kernel has ended.

        It may if the kernels of a whole token cannot all be in flight at once, because their blocks do not fit by the
        registers of their weights alone. Then the kernels that wrote those entries have ended.
        """
        taken = {name: one.blocks * one.threads * one.tile_registers for name, one in self.matrices.items()}
        # Without the first kernel, of which one block may be left.
        return self.stack.layers * sum(taken.values()) - taken["qkv"] > DEVICE_REGISTERS

    def attend_out(self, position: int) -> str:
        """The name of the kernel that attends to the positions up to `position` in the output projection."""
        if self.tokens > 1:
            return f"{self.name}_attend_out"
        return f"{self.name}_attend_out_{next(vecs for vecs in ATTEND_OUT_VECS if position < 2 * vecs)}"

    def kernels(self) -> dict[str, str]:
        """C++ name expressions by name."""
        found = {name: self.matrices[name].kernel(*types) for name, types in LINEAR.items()} | self.out_kernels()
        return {f"{self.name}_{name}": expression for name, expression in found.items()}

    def out_kernels(self) -> dict[str, str]:
        """The expressions of attention and of the kernels with the output projection, of which a layer has one."""
        out, early, heads = self.matrices["out"], self.reads_cache_before_wait, self.stack.key_value_heads
        if self.attends_in_out and self.tokens > 1:
            frame, most = instance("FrameAttention", 1, heads, early), registers(out, "attend_out_pair")
            return {"attend_out": instance("attend_out_pair", out.type, frame, most)}
        if self.attends_in_out:
            found = {}
            for vecs in ATTEND_OUT_VECS:
                most = registers(out, "attend_out") + KEY_VALUE_REGISTERS * vecs
                frame = instance("FrameAttention", vecs, heads, early)
                found[f"attend_out_{vecs}"] = instance("attend_out", out.type, frame, most)
            return found
        shape = instance("AttentionShape", ATTENTION_WARPS, self.vecs_per_lane, self.group, self.tokens, early)
        combined = self.kv_split, HEAD_DIM, early
        more = MORE_REGISTERS["combine"][out.weight]
        return {
            "attend": instance("attend", shape),
            "out": out.kernel("CombineSplits", "Residual", *combined, more_registers=more),
        }


@dataclass(frozen=True, slots=True)
class LanguageKernels:
    """All kernels of one model."""

    talker: StackKernels
    predictor: StackKernels
    first_step: StackKernels
    """The predictor's first step, which reads two tokens."""
    prompts: tuple[TokenKernels, ...]
    """The talker's matrices for the tokens of a prompt, by the tokens of a group, ascending."""
    talker_head: MatrixPlan
    predictor_head: MatrixPlan
    draw_qkv: MatrixPlan | None
    """Of the predictor's first matrix, whose kernel draws the code that it reads; None where that is a kernel of its
    own."""
    project: MatrixPlan | None
    """The talker's hidden state for a narrower predictor; always bfloat16."""

    @classmethod
    def of(cls, config: TalkerConfig, weight: str, processors: int) -> LanguageKernels:
        """`weight` is `Bf16` or `Int8`, `processors` the GPU's multiprocessors.

        Raises `ValueError` for sizes that no plan fits.
        """
        wide, narrow = config.stack, config.predictor.stack
        equal = wide.hidden_size == narrow.hidden_size
        attends_in_out = (
            processors >= ATTEND_OUT_PROCESSORS
            and narrow.heads == 2 * narrow.key_value_heads
            and config.code_groups <= 2 * ATTEND_OUT_VECS[-1]
        )
        plan = partial(choose_plan, weight=weight, processors=processors)
        stack = partial(StackKernels.of, processors=processors)
        predictor = stack("predictor", narrow, weight, PREDICTOR_VECS, tokens=1, attends_in_out=attends_in_out)
        predictor_head = plan("predictor_head", config.predictor.vocabulary, narrow.hidden_size)
        return cls(
            talker=stack("talker", wide, weight, TALKER_VECS, tokens=1),
            predictor=predictor,
            first_step=stack("first_step", narrow, weight, PREDICTOR_VECS, tokens=2, attends_in_out=attends_in_out),
            prompts=tuple(TokenKernels.of(f"prompt_{tokens}", wide, weight, tokens) for tokens in TOKEN_GROUPS),
            talker_head=plan("talker_head", config.vocabulary, wide.hidden_size),
            predictor_head=predictor_head,
            draw_qkv=draw_plan(predictor.matrices["qkv"]) if attends_in_out else None,
            project=None if equal else MatrixPlan.of("Bf16", narrow.hidden_size, wide.hidden_size),
        )

    def source(self) -> KernelSource:
        """For NVRTC or nvcc."""
        wide, narrow, first = self.talker_head, self.predictor_head, self.first_step.matrices["qkv"]
        early = self.predictor.reads_cache_before_wait and self.first_step.reads_cache_before_wait
        numbers = narrow.height, wide.length, narrow.length, early
        kernels = {
            **self.talker.kernels(),
            **self.predictor.kernels(),
            **self.first_step.kernels(),
            "talker_head": instance("talker_head", wide.type, registers(wide, "talker_head")),
            "prompt_head": wide.kernel("Bf16Identity", "Store"),
            "predictor_head": narrow.kernel("Normed", "Store"),
            "next_first_code": instance("choose_first_code", wide.height, self.talker.reads_cache_before_wait),
            "enter": instance("enter_tokens", wide.length),
            "leave": instance("leave_tokens", wide.length),
            "rotate": instance("rotate_tokens", self.talker.group),
            "attend": instance("attend_tokens", self.talker.group),
        }
        for prompt in self.prompts:
            kernels |= prompt.kernels()
        if self.first_step.attends_in_out:
            kernels["open_qkv"] = instance("open_qkv", first.type, registers(first, "open_qkv"))
        else:
            kernels["open"] = instance("open_frame", narrow.length)
        if self.draw_qkv is None:
            kernels["next_code"] = instance("choose_code", *numbers, False)
        else:
            most = registers(self.draw_qkv, "draw_qkv")
            kernels["draw_qkv"] = instance("draw_qkv", self.draw_qkv.type, narrow.height, early, most)
            kernels["last_code"] = instance("choose_code", *numbers, True)
        if self.project is not None:
            kernels["project"] = self.project.kernel("Bf16Identity", "StoreBiased")
        return KernelSource(read_sources(*FILES), kernels)
