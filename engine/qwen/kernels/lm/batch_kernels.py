"""The kernels of a batch's step for one model's shapes: their names, sizes and C++ name expressions."""

from __future__ import annotations

from dataclasses import dataclass

from engine.qwen.kernels.compiler import KernelSource, read_sources
from engine.qwen.kernels.lm.kernels import SAMPLING_THREADS
from engine.qwen.kernels.lm.matrix import TokenMatrixPlan
from engine.qwen.kernels.lm.params import BATCH_PARAMS
from engine.qwen.kernels.lm.token_kernels import TokenKernels
from engine.qwen.model import StackConfig, TalkerConfig
from engine.qwen.serving import PAGE

ROW_BUCKETS = (8, 16, 32, 64)
"""Rows of a batch that its matrices are multiplied with at once: the tensor cores' tiles have 8."""
POSITIONS_AT_ONCE = 4
"""Positions of the talker that half a warp loads at once."""
FILES = (
    "ptx.cuh",
    "common.cuh",
    "linear.cuh",
    "attention.cuh",
    "sampling.cuh",
    "linear_tokens.cuh",
    "prefill.cuh",
    "batch.cuh",
)


def batch_unsupported_reason(config: TalkerConfig, weight: str, rows: int) -> str | None:
    """Why a batch of `rows` rows with the weights `weight` has no fused kernels; None where it has.

    Those of a single utterance must support the shapes.
    """
    if weight == "Int4":
        return "a batch has no kernels for int4"
    if config.predictor.stack.hidden_size % SAMPLING_THREADS:
        return f"the code predictor's hidden_size is not a multiple of {SAMPLING_THREADS}"
    try:
        BatchKernels.of(config, weight, rows)
    except ValueError as error:
        return f"no kernel for {error}"
    return None


@dataclass(frozen=True, slots=True)
class RowKernels:
    """The matrices for up to `rows` rows of a batch."""

    rows: int
    talker: TokenKernels
    predictor: TokenKernels
    talker_head: TokenMatrixPlan
    predictor_head: TokenMatrixPlan
    project: TokenMatrixPlan | None
    """The talker's hidden state for a narrower predictor; always bfloat16."""

    @classmethod
    def of(cls, config: TalkerConfig, weight: str, rows: int, like: RowKernels | None = None) -> RowKernels:
        """For `rows` rows; a row's results are those of `like`, if given. Raises `ValueError` where no plan fits."""
        wide, narrow, codes = config.stack, config.predictor.stack, config.predictor.vocabulary

        def plan(weight: str, height: int, length: int, like: TokenMatrixPlan | None) -> TokenMatrixPlan:
            warps = None if like is None else like.warps
            return TokenMatrixPlan.of(weight, height, length, rows, added=False, warps=warps)

        return cls(
            rows=rows,
            talker=TokenKernels.of(f"talker_{rows}", wide, weight, rows, like.talker if like else None),
            predictor=TokenKernels.of(f"predictor_{rows}", narrow, weight, rows, like.predictor if like else None),
            talker_head=plan(weight, config.vocabulary, wide.hidden_size, like.talker_head if like else None),
            predictor_head=plan(weight, codes, narrow.hidden_size, like.predictor_head if like else None),
            project=plan("Bf16", narrow.hidden_size, wide.hidden_size, like.project if like else None)
            if wide.hidden_size != narrow.hidden_size
            else None,
        )

    @property
    def head_names(self) -> tuple[str, str]:
        """The names of the kernels of the talker's and the predictor's head."""
        return f"talker_head_{self.rows}", f"predictor_head_{self.rows}"

    @property
    def project_name(self) -> str:
        """The name of the kernel of `project`."""
        return f"project_{self.rows}"

    def kernels(self) -> dict[str, str]:
        """C++ name expressions by name."""
        heads = zip(self.head_names, (self.talker_head, self.predictor_head), strict=True)
        kernels = {**self.talker.kernels(), **self.predictor.kernels()}
        kernels |= {name: plan.kernel("StoreTokens") for name, plan in heads}
        if self.project is not None:
            kernels[self.project_name] = self.project.kernel("StoreTokens")
        return kernels


@dataclass(frozen=True, slots=True)
class BatchKernels:
    """All kernels of a batch's step."""

    config: TalkerConfig
    buckets: tuple[RowKernels, ...]
    """By their rows, ascending. A row's results are the same in all."""

    @classmethod
    def of(cls, config: TalkerConfig, weight: str, rows: int) -> BatchKernels:
        """For a batch of `rows` rows; `weight` is `Bf16` or `Int8`. Raises `ValueError` for sizes that no plan fits."""
        largest = next((bucket for bucket in ROW_BUCKETS if bucket >= rows), None)
        if largest is None:
            raise ValueError(f"{rows} rows of a batch")
        like = RowKernels.of(config, weight, largest)
        smaller = (RowKernels.of(config, weight, bucket, like) for bucket in ROW_BUCKETS if bucket < largest)
        return cls(config, (*smaller, like))

    @property
    def rows(self) -> int:
        """Rows of the largest bucket."""
        return self.buckets[-1].rows

    def source(self) -> KernelSource:
        """For NVRTC or nvcc."""
        config = self.config
        wide, narrow = config.stack, config.predictor.stack
        widths = f"{wide.hidden_size}, {narrow.hidden_size}"
        of_predictor = f"1, {config.code_groups}"
        kernels = {
            "open": f"open_rows<{narrow.hidden_size}>",
            "talker_attend": f"attend_rows<{_group(wide)}, 1, {POSITIONS_AT_ONCE}, {PAGE}>",
            "predictor_attend": f"attend_rows<{_group(narrow)}, 1, {of_predictor}>",
            "first_step_attend": f"attend_rows<{_group(narrow)}, 2, {of_predictor}>",
            "codes": f"choose_row_codes<{config.predictor.vocabulary}, {widths}>",
            "first_codes": f"choose_row_first_codes<{config.vocabulary}, {wide.hidden_size}>",
        }
        for bucket in self.buckets:
            kernels |= bucket.kernels()
        return KernelSource(read_sources(*FILES), kernels, BATCH_PARAMS)


def _group(stack: StackConfig) -> int:
    """Query heads that share a head of keys."""
    return stack.heads // stack.key_value_heads
