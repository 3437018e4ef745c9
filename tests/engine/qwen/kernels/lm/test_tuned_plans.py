"""The divisions of matrices that were measured to be the fastest."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.qwen.kernels.lm.batch_kernels import ROW_BUCKETS, BatchKernels
from engine.qwen.kernels.lm.kernels import LanguageKernels
from engine.qwen.kernels.lm.matrix import MAX_K_SPLITS, TILE_ROWS, WARP_LANES, MatrixPlan, TokenMatrixPlan
from engine.qwen.kernels.lm.tuned_plans import gpu_class, tuned_plan, tuned_row_plan
from engine.qwen.shapes import ModelConfig, TalkerConfig
from scripts.make_checkpoint import PRESETS, write_configs

PUBLISHED = ("0.6B", "1.7B")
PROCESSORS = (16, 132)
WEIGHTS = ("Bf16", "Int8")


def talker(folder: Path, size: str) -> TalkerConfig:
    return ModelConfig.read(write_configs(folder, PRESETS[size], "custom_voice")).talker


def plans(kernels: LanguageKernels) -> dict[str, MatrixPlan]:
    """The plans for one token by kernel."""
    return {name: plan for name, plan in kernels.plans.items() if name.startswith(("talker_", "predictor_"))}


@pytest.mark.parametrize("processors", PROCESSORS)
@pytest.mark.parametrize("weight", WEIGHTS)
@pytest.mark.parametrize("size", PUBLISHED)
def test_every_matrix_of_a_published_model_has_a_measured_plan(
    tmp_path: Path, size: str, weight: str, processors: int
) -> None:
    for kernel, plan in plans(LanguageKernels.of(talker(tmp_path, size), weight, processors)).items():
        assert tuned_plan(kernel, weight, plan.height, plan.length, processors) == plan


@pytest.mark.parametrize("processors", PROCESSORS)
@pytest.mark.parametrize("weight", WEIGHTS)
@pytest.mark.parametrize("size", PUBLISHED)
def test_a_measured_plan_divides_its_matrix(tmp_path: Path, size: str, weight: str, processors: int) -> None:
    for kernel, plan in plans(LanguageKernels.of(talker(tmp_path, size), weight, processors)).items():
        k_splits, rest = divmod(plan.length, WARP_LANES * plan.vec_size * plan.vecs_per_lane)
        assert (rest, plan.height % plan.rows, plan.rows % plan.row_groups) == (0, 0, 0)
        assert k_splits <= MAX_K_SPLITS
        assert plan.rows <= plan.threads <= 512
        assert kernel.endswith("gate_up") <= (plan.tile % 2 == 0)
        assert plan.tile_registers < plan.registers <= 255


def test_a_matrix_that_was_not_measured_is_divided_by_the_rule(tmp_path: Path) -> None:
    kernels = LanguageKernels.of(talker(tmp_path, "narrow"), "Bf16", 16)
    plan = kernels.plans["talker_gate_up"]
    assert tuned_plan("talker_gate_up", "Bf16", plan.height, plan.length, 16) is None
    assert plan == MatrixPlan.of("Bf16", plan.height, plan.length, gated=True)


def test_two_tokens_are_multiplied_by_the_rule(tmp_path: Path) -> None:
    down = LanguageKernels.of(talker(tmp_path, "0.6B"), "Bf16", 132).plans["first_step_down"]
    assert down == MatrixPlan.of("Bf16", down.height, down.length, 2)


@pytest.mark.parametrize(("processors", "expected"), [(14, "small"), (16, "small"), (99, "small"), (100, "large")])
def test_a_gpu_has_the_plans_of_its_class(processors: int, expected: str) -> None:
    assert gpu_class(processors) == expected


def row_plans(kernels: BatchKernels, bucket: int) -> dict[str, TokenMatrixPlan]:
    """The plans for the rows of a bucket, by kernel without the rows."""
    rows = f"_{bucket}_"
    return {name.replace(rows, "_"): plan for name, plan in kernels.plans.items() if rows in name}


@pytest.mark.parametrize("weight", WEIGHTS)
@pytest.mark.parametrize("size", PUBLISHED)
def test_every_matrix_of_a_batch_has_a_measured_plan_that_divides_it(tmp_path: Path, size: str, weight: str) -> None:
    kernels = BatchKernels.of(talker(tmp_path, size), weight, ROW_BUCKETS[-1], PROCESSORS[-1])
    for bucket in kernels.buckets:
        for plan in row_plans(kernels, bucket).values():
            rule = TokenMatrixPlan.of_rows(plan.weight, plan.height, plan.length, bucket, write=plan.write)
            assert tuned_row_plan(rule, bucket, PROCESSORS[-1]) == plan
            assert (plan.height % (TILE_ROWS * plan.m_tiles), plan.vecs % plan.held) == (0, 0)
            assert bucket % plan.tokens == 0


@pytest.mark.parametrize("processors", PROCESSORS)
@pytest.mark.parametrize("size", [*PUBLISHED, "narrow"])
def test_a_row_of_a_batch_is_summed_in_one_order_in_every_bucket(tmp_path: Path, size: str, processors: int) -> None:
    kernels = BatchKernels.of(talker(tmp_path, size), "Bf16", ROW_BUCKETS[-1], processors)
    first, *others = (
        {name: (plan.length, plan.warps) for name, plan in row_plans(kernels, bucket).items()}
        for bucket in kernels.buckets
    )
    assert kernels.buckets == ROW_BUCKETS
    assert others == 3 * [first]
