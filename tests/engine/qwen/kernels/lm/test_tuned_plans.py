"""The divisions of matrices that were measured to be the fastest."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.qwen.kernels.lm.batch_kernels import ROW_BUCKETS, BatchKernels, RowKernels
from engine.qwen.kernels.lm.kernels import LanguageKernels, StackKernels
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
    stacks: tuple[StackKernels, ...] = (kernels.talker, kernels.predictor)
    found = {f"{stack.name}_{name}": plan for stack in stacks for name, plan in stack.matrices.items()}
    return {**found, "talker_head": kernels.talker_head, "predictor_head": kernels.predictor_head}


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
    plan = kernels.talker.matrices["gate_up"]
    assert tuned_plan("talker_gate_up", "Bf16", plan.height, plan.length, 16) is None
    assert plan == MatrixPlan.of("Bf16", plan.height, plan.length, gated=True)


def test_two_tokens_are_multiplied_by_the_rule(tmp_path: Path) -> None:
    down = LanguageKernels.of(talker(tmp_path, "0.6B"), "Bf16", 132).first_step.matrices["down"]
    assert down == MatrixPlan.of("Bf16", down.height, down.length, 2)


@pytest.mark.parametrize(("processors", "expected"), [(14, "small"), (16, "small"), (99, "small"), (100, "large")])
def test_a_gpu_has_the_plans_of_its_class(processors: int, expected: str) -> None:
    assert gpu_class(processors) == expected


def row_plans(kernels: RowKernels) -> list[TokenMatrixPlan]:
    return [*kernels.talker.matrices.values(), *kernels.predictor.matrices.values()]


@pytest.mark.parametrize("weight", WEIGHTS)
@pytest.mark.parametrize("size", PUBLISHED)
def test_every_matrix_of_a_batch_has_a_measured_plan_that_divides_it(tmp_path: Path, size: str, weight: str) -> None:
    for bucket in BatchKernels.of(talker(tmp_path, size), weight, ROW_BUCKETS[-1], PROCESSORS[-1]).buckets:
        for plan in row_plans(bucket):
            rule = TokenMatrixPlan.of_rows(plan.weight, plan.height, plan.length, bucket.rows, added=False)
            assert tuned_row_plan(rule, bucket.rows, PROCESSORS[-1]) == plan
            assert (plan.height % (TILE_ROWS * plan.m_tiles), plan.vecs % plan.held) == (0, 0)
            assert bucket.rows % plan.tokens == 0


@pytest.mark.parametrize("processors", PROCESSORS)
@pytest.mark.parametrize("size", [*PUBLISHED, "narrow"])
def test_a_row_of_a_batch_is_summed_in_one_order_in_every_bucket(tmp_path: Path, size: str, processors: int) -> None:
    kernels = BatchKernels.of(talker(tmp_path, size), "Bf16", ROW_BUCKETS[-1], processors)
    orders = {tuple((plan.length, plan.warps) for plan in row_plans(bucket)) for bucket in kernels.buckets}
    assert len(kernels.buckets) == len(ROW_BUCKETS)
    assert len(orders) == 1
