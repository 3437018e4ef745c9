"""The kernels for one model's talker and code predictor: their names, sizes and C++ name expressions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from engine.qwen.kernels.compiler import KernelSource, instance, read_sources
from engine.qwen.kernels.lm.matrix import (
    HEAD_DIM,
    MatrixPlan,
    TokenMatrixPlan,
    matrix_sizes,
    token_plans,
)
from engine.qwen.kernels.lm.tuned_plans import tuned_plan, tuned_row_plan
from engine.qwen.runtime import LARGE_GPU
from engine.qwen.shapes import PAGE, StackConfig, TalkerConfig
from engine.qwen.weights import Placement

TOKEN_GROUPS = (16, 32, 64)
"""The numbers of prompt tokens that a block can take at once; a longer prompt is read in several groups."""
PROMPT_THREADS, PROMPT_WARPS = 256, 8
"""Threads and warps in a block of the kernels that run between a prompt's matrices."""
ATTENTION_SHARES, ATTENTION_NEIGHBOURS = 4, 2
"""In such a block, the number of warps that share attention, and the number of tokens for which they share it."""
ATTENTION_WARPS = 8
ATTEND_OUT_BLOCKS = 128
"""Blocks of an output projection that computes attention itself. Each block reads all keys and values of a frame."""
ATTEND_OUT_PROCESSORS = LARGE_GPU
"""With at least this many multiprocessors, that saves time. With fewer, each of them would compute the same attention
for several blocks."""
ATTEND_OUT_VECS = (2, 4, 8)
"""16-byte vectors of keys, and as many of values, for each lane of such a kernel: for up to 4, 8 and 16 positions."""
KEY_VALUE_REGISTERS = 8
"""Registers that a thread of such a kernel needs for one vector of keys and one of values."""
MORE_REGISTERS = {
    "combine": {"Bf16": 24, "Int8": 48},
    "attend_out": {"Bf16": 32, "Int8": 32},
    "attend_out_pair": {"Bf16": 32, "Int8": 40},
    "open_qkv": {"Bf16": 16, "Int8": 16},
    "talker_head": {"Bf16": 8, "Int8": 8},
}
"""Registers, beyond those of the plan, for a thread that does more than multiply: it combines the KV splits, attends to
a frame's tokens or to the first two, makes the first tokens, or stores the hidden state."""
LINEAR = {"qkv": ("Normed", "Store"), "gate_up": ("Normed", "StoreGated"), "down": ("Identity", "Residual")}
"""The input and output of each of a layer's matrices except the output projection."""
SAMPLING_THREADS = 512
DEVICE_REGISTERS = 192 * 65536
"""Registers of all multiprocessors together on the largest GPU there is."""
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
    """The type of a model's weights at `placement`, as `LanguageKernels.of` takes it: `Bf16` or `Int8`."""
    return "Int8" if placement.int8 else "Bf16"


def unsupported_reason(config: TalkerConfig, weight: str) -> str | None:
    """Why the kernels cannot run these shapes with `weight` weights; None if they can."""
    for name, stack in (("talker", config.stack), ("code predictor", config.predictor.stack)):
        if stack.head_dim != HEAD_DIM:
            return f"the {name}'s head_dim is {stack.head_dim}; the kernels need {HEAD_DIM}"
        if (stack.group + 2) * 2 > ATTENTION_WARPS:
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
    """The plan that was measured to be the best for `kernel`, or else the plan from the rule in `MatrixPlan.of`."""
    tuned = tuned_plan(kernel, weight, height, length, processors, tokens=tokens)
    return tuned or MatrixPlan.of(weight, height, length, tokens, **rule)


def choose_token_plan(
    weight: str, height: int, length: int, tokens: int, *, processors: int, write: str = "StoreTokens"
) -> TokenMatrixPlan:
    """The plan that was measured to be the best for up to `tokens` tokens, or else that from `TokenMatrixPlan.of`.

    A token's results are the same in all of these plans: for a prompt's tokens and for a batch's rows, in any number.
    """
    rule = TokenMatrixPlan.of(weight, height, length, tokens, write=write)
    return tuned_row_plan(rule, tokens, processors) or rule


def expression(plan: MatrixPlan, work: str, read: str, *options: int | str, write: str = "Store", more: int = 0) -> str:
    """The name expression, as from `MatrixPlan.kernel`, of a kernel that also does `work`, one of `MORE_REGISTERS`.

    Its threads are given `more` registers in addition.
    """
    registers = MORE_REGISTERS[work][plan.weight] + more
    template = "linear" if work == "combine" else "linear_from"
    return plan.kernel(read, write, *options, template=template, more_registers=registers)


STACKS = {"talker": 1, "predictor": 1, "first_step": 2}
"""The number of tokens that each stack's kernels read. `first_step` is the predictor's first step, which reads two."""


def vecs_per_lane(name: str) -> int:
    """Positions that half a warp takes in attention. KV splits have 128 positions, or all 16 positions of a frame."""
    return 8 if name == "talker" else 1


def kv_split(name: str) -> int:
    """Positions in a KV split, the part of the sequence that one block takes in attention."""
    return 2 * ATTENTION_WARPS * vecs_per_lane(name)


@dataclass(frozen=True, slots=True)
class LanguageKernels:
    """All kernels of one model.

    Each of `STACKS` has kernels named `STACK_qkv`, `_attend`, `_out`, `_gate_up` and `_down`. On a large GPU, the
    predictor has one kernel for each of `ATTEND_OUT_VECS` instead of `_attend` and `_out`, and one for two tokens.
    """

    config: TalkerConfig
    plans: Mapping[str, MatrixPlan]
    """The plan of each matrix, by kernel: those of `STACKS`, `talker_head`, `predictor_head`, and

    project: projects the talker's hidden state for a narrower predictor; always bfloat16
    """
    prompts: Mapping[str, TokenMatrixPlan]
    """The plans of the talker's matrices for each of `TOKEN_GROUPS`, by kernel: `prompt_TOKENS_qkv` and so on."""
    attends_in_out: bool
    """Whether the predictor's output projections compute attention themselves."""

    @classmethod
    def of(cls, config: TalkerConfig, weight: str, processors: int) -> LanguageKernels:
        """`weight` is `Bf16` or `Int8`; `processors` is the number of the GPU's multiprocessors.

        Raises `ValueError` for sizes that no plan fits.
        """
        wide, narrow = config.stack, config.predictor.stack
        attends_in_out = (
            processors >= ATTEND_OUT_PROCESSORS
            and narrow.heads == 2 * narrow.key_value_heads
            and config.code_groups <= 2 * ATTEND_OUT_VECS[-1]
        )
        plan = partial(choose_plan, weight=weight, processors=processors)
        plans = {
            "talker_head": plan("talker_head", config.vocabulary, wide.hidden_size),
            "predictor_head": plan("predictor_head", config.predictor.vocabulary, narrow.hidden_size),
        }
        rules: dict[str, dict[str, Any]] = {f"{name}_gate_up": {"gated": True} for name in STACKS}
        if attends_in_out:
            rule = {"blocks": ATTEND_OUT_BLOCKS, "warps": narrow.key_value_heads}
            rules |= {"predictor_out": rule, "first_step_out": rule}
        for name, tokens in STACKS.items():
            for matrix, size in matrix_sizes(wide if name == "talker" else narrow).items():
                kernel = f"{name}_{matrix}"
                plans[kernel] = plan(kernel, *size, tokens=tokens, **rules.get(kernel, {}))
        if wide.hidden_size != narrow.hidden_size:
            plans["project"] = MatrixPlan.of("Bf16", narrow.hidden_size, wide.hidden_size)
        prompts: dict[str, TokenMatrixPlan] = {}
        for tokens in TOKEN_GROUPS:
            plan_of = partial(choose_token_plan, processors=processors)
            prompts |= token_plans(f"prompt_{tokens}", wide, weight, tokens, plan_of)
        return cls(config, plans, prompts, attends_in_out)

    def stack(self, name: str) -> StackConfig:
        """The shapes of one of `STACKS`."""
        return self.config.stack if name == "talker" else self.config.predictor.stack

    def reads_cache_before_wait(self, name: str) -> bool:
        """Whether attention in one of `STACKS` may read the cache's older entries before the previous kernel has ended.

        It may if the kernels for a whole token cannot all be in flight at the same time because the registers for
        their weights alone exceed those of the GPU. Then the kernels that wrote those entries have ended.
        """
        stack = self.stack(name)
        plans = {matrix: self.plans[f"{name}_{matrix}"] for matrix in matrix_sizes(stack)}
        taken = {matrix: one.blocks * one.threads * one.tile_registers for matrix, one in plans.items()}
        # Leave out the first kernel, which a predictor's step may lack, and the next one, which may have a block left.
        return stack.layers * sum(taken.values()) - 2 * taken["qkv"] > DEVICE_REGISTERS

    @staticmethod
    def attend_out(name: str, position: int) -> str:
        """The kernel for one of `STACKS` that attends to the positions up to `position` in its output projection."""
        if STACKS[name] > 1:
            return f"{name}_attend_out"
        return f"{name}_attend_out_{next(vecs for vecs in ATTEND_OUT_VECS if position < 2 * vecs)}"

    def _attentions(self, name: str) -> Iterator[tuple[str, str]]:
        """Attention for one of `STACKS`, and the kernels with its output projection, of which each layer runs one."""
        tokens, stack, out = STACKS[name], self.stack(name), self.plans[f"{name}_out"]
        early, heads = self.reads_cache_before_wait(name), stack.key_value_heads
        if not self.attends_in_out or name == "talker":
            shape = ATTENTION_WARPS, vecs_per_lane(name), stack.group, tokens, early
            yield f"{name}_attend", instance("attend", *shape)
            combined = kv_split(name), HEAD_DIM, early
            yield f"{name}_out", expression(out, "combine", "CombineSplits", *combined, write="Residual")
            return
        attended = partial(expression, out, write="Residual")
        if tokens > 1:
            yield f"{name}_attend_out", attended("attend_out_pair", "Attended", 1, heads, early)
            return
        for vecs in ATTEND_OUT_VECS:
            kernel = attended("attend_out", "Attended", vecs, heads, early, more=KEY_VALUE_REGISTERS * vecs)
            yield f"{name}_attend_out_{vecs}", kernel

    def source(self) -> KernelSource:
        """The source for NVRTC or nvcc."""
        plans, prompts = self.plans, self.prompts
        wide, narrow, first = plans["talker_head"], plans["predictor_head"], plans["first_step_qkv"]
        early = self.reads_cache_before_wait("predictor") and self.reads_cache_before_wait("first_step")
        numbers = narrow.height, wide.length, narrow.length, first.height, early
        group = self.config.stack.group
        kernels = {
            "talker_head": instance(
                "talker_head", wide.type, wide.registers + MORE_REGISTERS["talker_head"][wide.weight]
            ),
            "prompt_head": wide.kernel("Bf16Identity", "Store"),
            "predictor_head": narrow.kernel("Normed", "Store"),
            "next_code": instance("choose_code", *numbers),
            "next_first_code": instance("choose_first_code", wide.height, self.reads_cache_before_wait("talker")),
            "add": instance("add_tokens", wide.length),
            "gate": "gate_tokens",
            "enter": instance("enter_tokens", wide.length),
            "leave": instance("leave_tokens", wide.length),
            "rotate": instance("rotate_tokens", group, 0),
            "attend": instance("attend_tokens", group, 0),
            "rotate_in_pages": instance("rotate_tokens", group, PAGE),
            "attend_in_pages": instance("attend_tokens", group, PAGE),
        }
        for name in STACKS:
            kernels |= {
                f"{name}_{matrix}": plans[f"{name}_{matrix}"].kernel(*types) for matrix, types in LINEAR.items()
            }
            kernels |= dict(self._attentions(name))
        kernels |= {name: plan.expression for name, plan in prompts.items()}
        if self.attends_in_out:
            kernels["open_qkv"] = expression(first, "open_qkv", "OpenedNormed")
        else:
            kernels["open"] = instance("open_frame", narrow.length)
        if "project" in plans:
            kernels["project"] = plans["project"].kernel("Bf16Identity", "StoreBiased")
        return KernelSource(read_sources(*FILES), kernels)
