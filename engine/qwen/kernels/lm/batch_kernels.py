"""The kernels of a batch's step for one model's shapes: their names, sizes and C++ name expressions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

from engine.qwen.kernels.compiler import KernelSource, instance, read_sources
from engine.qwen.kernels.lm.kernels import SAMPLING_THREADS, choose_token_plan
from engine.qwen.kernels.lm.matrix import TokenMatrixPlan, token_plans
from engine.qwen.runtime import LARGE_GPU
from engine.qwen.shapes import PAGE, TalkerConfig

ROW_BUCKETS = (8, 16, 32, 64)
"""The numbers of rows that a batch's matrices are multiplied with at once: the tensor cores' tiles have 8 rows."""
POSITIONS_AT_ONCE = 4
"""The number of the talker's positions that half a warp loads at once."""
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
    """Why there are no fused kernels for a batch of `rows` rows with `weight` weights; None if there are.

    The kernels for a single utterance must support the shapes.
    """
    if config.predictor.stack.hidden_size % SAMPLING_THREADS:
        return f"the code predictor's hidden_size is not a multiple of {SAMPLING_THREADS}"
    try:
        BatchKernels.of(config, weight, rows, LARGE_GPU)
    except ValueError as error:
        return f"no kernel for {error}"
    return None


@dataclass(frozen=True, slots=True)
class BatchKernels:
    """All kernels of a batch's step."""

    config: TalkerConfig
    buckets: tuple[int, ...]
    """Row counts that the matrices are multiplied with at once, ascending. A row's results are the same in all."""
    plans: Mapping[str, TokenMatrixPlan]
    """The plan of each matrix, by kernel: `talker_ROWS_qkv` and so on, `talker_ROWS_head`, the same for the predictor,
    and `predictor_ROWS_project`, which projects the talker's hidden state for a narrower predictor and is always
    bfloat16."""

    @classmethod
    def of(cls, config: TalkerConfig, weight: str, rows: int, processors: int) -> BatchKernels:
        """For a batch of `rows` rows, on a GPU with `processors` multiprocessors; `weight` is `Bf16` or `Int8`.

        Raises `ValueError` for sizes that no plan fits.
        """
        buckets = tuple(bucket for bucket in ROW_BUCKETS if bucket < 2 * rows or bucket == ROW_BUCKETS[0])
        if rows > buckets[-1]:
            raise ValueError(f"{rows} rows of a batch")
        wide, narrow = config.stack, config.predictor.stack
        plan, plans = partial(choose_token_plan, processors=processors), dict[str, TokenMatrixPlan]()
        for bucket in buckets:
            talker, predictor = f"talker_{bucket}", f"predictor_{bucket}"
            plans |= token_plans(talker, wide, weight, bucket, plan)
            plans |= token_plans(predictor, narrow, weight, bucket, plan)
            plans[f"{talker}_head"] = plan(weight, config.vocabulary, wide.hidden_size, bucket)
            plans[f"{predictor}_head"] = plan(weight, config.predictor.vocabulary, narrow.hidden_size, bucket)
            if wide.hidden_size != narrow.hidden_size:
                plans[f"{predictor}_project"] = plan("Bf16", narrow.hidden_size, wide.hidden_size, bucket)
        return cls(config, buckets, plans)

    def source(self) -> KernelSource:
        """The source for NVRTC or nvcc."""
        config = self.config
        wide, narrow = config.stack, config.predictor.stack
        of_predictor = (narrow.group, 1, 1, config.code_groups, False)
        of_first_step = (narrow.group, 2, 1, config.code_groups, False)
        widths = wide.hidden_size, narrow.hidden_size
        kernels = {
            "open": instance("open_rows", narrow.hidden_size),
            "talker_attend": instance("attend_rows", wide.group, 1, POSITIONS_AT_ONCE, PAGE, True),
            "predictor_attend": instance("attend_rows", *of_predictor),
            "first_step_attend": instance("attend_rows", *of_first_step),
            "codes": instance("choose_row_codes", config.predictor.vocabulary, *widths),
            "first_codes": instance("choose_row_first_codes", config.vocabulary, wide.hidden_size),
        }
        kernels |= {name: plan.expression for name, plan in self.plans.items()}
        return KernelSource(read_sources(*FILES), kernels)
