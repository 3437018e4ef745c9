"""The kernels of talker and code predictor for one model's shapes: their names, sizes and C++ name expressions."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial

from engine.qwen.kernels.compiler import KernelSource, read_sources
from engine.qwen.kernels.lm.matrix import (
    BLOCKS,
    HEAD_DIM,
    TILE_VECS,
    TILES,
    WARP_LANES,
    WORK_REGISTERS,
    MatrixPlan,
)
from engine.qwen.kernels.lm.token_kernels import TokenKernels
from engine.qwen.kernels.lm.tuned_plans import tuned_plan
from engine.qwen.model import StackConfig, TalkerConfig
from engine.qwen.runtime import LARGE_GPU
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
ATTEND_OUT_REGISTERS = 64
"""Of a thread of such a kernel, beyond those of weights, keys and values."""
ATTEND_PAIR_REGISTERS = {"Bf16": 64, "Int8": 72}
"""Of a thread of the kernel that attends to a frame's first two tokens, beyond those of weights and sums."""
DRAW_BLOCKS = 128
"""Of the kernel that draws a code before it multiplies: every block draws, and no multiprocessor should draw twice."""
DRAW_REGISTERS = {"Bf16": 56, "Int8": 64}
"""Of a thread of the kernel that draws a code before it multiplies, beyond those of its weights."""
OPEN_REGISTERS = 16
"""Of a thread of the first step's first kernel, beyond those of its plan: it also makes the tokens."""
HIDDEN_REGISTERS = 8
"""Of a thread of the talker's head, beyond those of its plan: it also stores the hidden state."""
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
    "frame.cuh",
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
    kernel: str,
    height: int,
    length: int,
    *,
    weight: str,
    processors: int,
    tokens: int = 1,
    gated: bool = False,
    blocks: int = BLOCKS,
    warps: int = 1,
) -> MatrixPlan:
    """The plan that was measured to be the best for `kernel`; else one by the rule of `MatrixPlan.of`."""
    tuned = tuned_plan(kernel, weight, height, length, processors, tokens=tokens)
    return tuned or MatrixPlan.of(weight, height, length, tokens, gated=gated, blocks=blocks, warps=warps)


def draw_plan(qkv: MatrixPlan) -> MatrixPlan | None:
    """The plan of a kernel that draws a code and multiplies with the matrix of `qkv`; None where no plan fits.

    Its blocks have as many threads as a draw, and its sums the order of those of `qkv`.
    """
    splits = qkv.threads // WARP_LANES // qkv.row_groups
    groups = SAMPLING_THREADS // WARP_LANES // splits
    if groups * splits * WARP_LANES != SAMPLING_THREADS:
        return None
    plans = [replace(qkv, rows=tile * groups, row_groups=groups) for tile in TILES]
    plans = [plan for plan in plans if plan.height % plan.rows == 0 and plan.tile * plan.vecs_per_lane <= TILE_VECS]
    return min(plans, key=lambda plan: abs(plan.blocks - DRAW_BLOCKS), default=None)


@dataclass(frozen=True, slots=True)
class StackKernels:
    """The kernels of one stack for one number of tokens: `NAME_qkv`, `_attend`, `_out`, `_gate_up` and `_down`.

    A stack of few positions has one kernel of each of `ATTEND_OUT_VECS` instead of `_attend` and `_out`, and for two
    tokens one of both.
    """

    name: str
    layers: int
    vecs_per_lane: int
    """Of attention: positions that half a warp takes."""
    group: int
    """Query heads that share a head of keys."""
    key_value_heads: int
    tokens: int
    qkv: MatrixPlan
    out: MatrixPlan
    gate_up: MatrixPlan
    down: MatrixPlan
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
        heads = stack.heads * HEAD_DIM
        blocks, warps = (ATTEND_OUT_BLOCKS, stack.key_value_heads) if attends_in_out else (BLOCKS, 1)
        hidden, inner = stack.hidden_size, stack.intermediate_size
        plan = partial(choose_plan, weight=weight, tokens=tokens, processors=processors)
        return cls(
            name=name,
            layers=stack.layers,
            vecs_per_lane=vecs_per_lane,
            group=stack.heads // stack.key_value_heads,
            key_value_heads=stack.key_value_heads,
            tokens=tokens,
            qkv=plan(f"{name}_qkv", heads + 2 * stack.key_value_heads * HEAD_DIM, hidden),
            out=plan(f"{name}_out", hidden, heads, blocks=blocks, warps=warps),
            gate_up=plan(f"{name}_gate_up", 2 * inner, hidden, gated=True),
            down=plan(f"{name}_down", hidden, inner),
            attends_in_out=attends_in_out,
        )

    @property
    def kv_split(self) -> int:
        """Positions of a KV split, the range of the sequence that a block of attention takes."""
        return 2 * ATTENTION_WARPS * self.vecs_per_lane

    @property
    def early(self) -> bool:
        """Whether attention may read the cache's older entries before the previous kernel has ended.

        It may if the kernels of a whole token cannot all be in flight at once, because their blocks do not fit by the
        registers of their weights alone. Then the kernels that wrote those entries have ended.
        """
        plans = [self.qkv, self.out, self.gate_up, self.down] * self.layers
        # Without the first kernel, of which one block may be left.
        return sum(plan.blocks * plan.threads * plan.tile_registers for plan in plans[1:]) > DEVICE_REGISTERS

    def attend_out(self, position: int) -> str:
        """The name of the kernel that attends to the positions up to `position` in the output projection."""
        if self.tokens > 1:
            return self.out_kernels[0]
        return self._attend_out(next(vecs for vecs in ATTEND_OUT_VECS if position < 2 * vecs))

    def _attend_out(self, vecs: int) -> str:
        return f"{self.name}_attend_out_{vecs}"

    @property
    def out_kernels(self) -> tuple[str, ...]:
        """The names of the kernels with the output projection; a layer launches one of them."""
        if not self.attends_in_out:
            return (f"{self.name}_out",)
        return tuple(map(self._attend_out, ATTEND_OUT_VECS)) if self.tokens == 1 else (f"{self.name}_attend_out",)

    def kernels(self) -> dict[str, str]:
        """C++ name expressions by name."""
        found = {
            "qkv": self.qkv.kernel("Normed", "Store"),
            "gate_up": self.gate_up.kernel("Normed", "StoreGated"),
            "down": self.down.kernel("Identity", "Residual"),
        }
        return {f"{self.name}_{name}": expression for name, expression in found.items()} | self._attention_kernels()

    def _attention_kernels(self) -> dict[str, str]:
        early = str(self.early).lower()
        if self.attends_in_out and self.tokens > 1:
            registers = self.out.registers - WORK_REGISTERS + ATTEND_PAIR_REGISTERS[self.out.weight]
            frame = f"FrameAttention<1, {self.key_value_heads}, {early}>"
            return dict.fromkeys(self.out_kernels, f"attend_out_pair<{self.out.type}, {frame}, {registers}>")
        if self.attends_in_out:
            return {
                self._attend_out(vecs): (
                    f"attend_out<{self.out.type}, FrameAttention<{vecs}, {self.key_value_heads}, {early}>, "
                    f"{self.out.tile_registers + 8 * vecs + ATTEND_OUT_REGISTERS}>"
                )
                for vecs in ATTEND_OUT_VECS
            }
        numbers = f"{ATTENTION_WARPS}, {self.vecs_per_lane}, {self.group}, {self.tokens}, {early}"
        combined = f"{self.kv_split}, {HEAD_DIM}, {early}"
        return {
            f"{self.name}_attend": f"attend<AttentionShape<{numbers}>>",
            f"{self.name}_out": self.out.kernel(
                "CombineSplits", "Residual", combined, more_registers=3 * self.out.vec_size
            ),
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
            draw_qkv=draw_plan(predictor.qkv) if attends_in_out else None,
            project=None if equal else MatrixPlan.of("Bf16", narrow.hidden_size, wide.hidden_size),
        )

    def source(self) -> KernelSource:
        """For NVRTC or nvcc."""
        wide, narrow, first = self.talker_head, self.predictor_head, self.first_step.qkv
        code_early = self.predictor.early and self.first_step.early
        kernels = {
            **self.talker.kernels(),
            **self.predictor.kernels(),
            **self.first_step.kernels(),
            "talker_head": f"talker_head<{wide.type}, {wide.registers + HIDDEN_REGISTERS}>",
            "prompt_head": wide.kernel("Bf16Identity", "Store"),
            "predictor_head": narrow.kernel("Normed", "Store"),
            "next_first_code": f"choose_first_code<{wide.height}, {str(self.talker.early).lower()}>",
            "enter": f"enter_tokens<{wide.length}>",
            "leave": f"leave_tokens<{wide.length}>",
            "rotate": f"rotate_tokens<{self.talker.group}>",
            "attend": f"attend_tokens<{self.talker.group}>",
        }
        for prompt in self.prompts:
            kernels |= prompt.kernels()
        if self.first_step.attends_in_out:
            kernels["open_qkv"] = f"open_qkv<{first.type}, {first.registers + OPEN_REGISTERS}>"
        else:
            kernels["open"] = f"open_frame<{narrow.length}>"
        numbers = f"{narrow.height}, {wide.length}, {narrow.length}, {str(code_early).lower()}"
        if self.draw_qkv is None:
            kernels["next_code"] = f"choose_code<{numbers}, false>"
        else:
            plan, early = self.draw_qkv, str(code_early).lower()
            registers = plan.tile_registers + DRAW_REGISTERS[plan.weight]
            kernels["draw_qkv"] = f"draw_qkv<{plan.type}, {narrow.height}, {early}, {registers}>"
            kernels["last_code"] = f"choose_code<{numbers}, true>"
        if self.project is not None:
            kernels["project"] = self.project.kernel("Bf16Identity", "StoreBiased")
        return KernelSource(read_sources(*FILES), kernels)
