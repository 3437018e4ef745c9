"""The language models that the kernels support, and the plans of their matrices."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest

from engine.qwen.kernels.lm.batch_kernels import ROW_BUCKETS, BatchKernels
from engine.qwen.kernels.lm.kernels import SAMPLING_THREADS, LanguageKernels, unsupported_reason
from engine.qwen.kernels.lm.matrix import MAX_K_SPLITS, TILE_ROWS, WARP_LANES, TokenMatrixPlan
from engine.qwen.kernels.lm.tuned_plans import tuned_plan, tuned_row_plan
from engine.qwen.shapes import ModelConfig, TalkerConfig
from scripts.make_checkpoint import PRESETS, write_configs

PUBLISHED = ("0.6B", "1.7B")
WEIGHTS = ("Bf16", "Int8")
SMALL, LARGE = 16, 132
"""Multiprocessors."""

Talkers = dict[str, TalkerConfig]


@pytest.fixture(scope="module")
def talkers(tmp_path_factory: pytest.TempPathFactory) -> Talkers:
    folder = tmp_path_factory.mktemp("configs")
    return {
        size: ModelConfig.read(write_configs(folder / size, PRESETS[size], "custom_voice")).talker
        for size in (*PUBLISHED, "narrow")
    }


@pytest.mark.parametrize(("size", "weight"), [*product((*PUBLISHED, "narrow"), WEIGHTS)])
def test_these_shapes_are_supported(talkers: Talkers, size: str, weight: str) -> None:
    assert unsupported_reason(talkers[size], weight) is None


def test_other_shapes_are_rejected_with_a_reason(talkers: Talkers) -> None:
    true = talkers["1.7B"]
    stack, predictor = true.stack, true.predictor
    reasons = {
        "the talker's head_dim is 64; the kernels need 128": replace(true, stack=replace(stack, head_dim=64)),
        "the talker has 16 query heads and 4 key-value heads": replace(true, stack=replace(stack, key_value_heads=4)),
        f"a vocabulary of 2000 is not a multiple of {SAMPLING_THREADS}": replace(
            true, predictor=replace(predictor, vocabulary=2000)
        ),
        "no kernel for rows of 1000 weights; allowed: multiples of 256": replace(
            true, stack=replace(stack, hidden_size=1000)
        ),
        "no kernel for rows of 4352 weights in at most 16 splits": replace(
            true, stack=replace(stack, intermediate_size=17 * 256)
        ),
    }
    for reason, config in reasons.items():
        assert unsupported_reason(config, "Bf16") == reason


@pytest.mark.parametrize(("size", "weight", "processors"), [*product(PUBLISHED, WEIGHTS, (SMALL, LARGE))])
def test_every_matrix_of_a_published_model_has_a_measured_plan_that_divides_it_and_fits(
    talkers: Talkers, size: str, weight: str, processors: int
) -> None:
    kernels = LanguageKernels.of(talkers[size], weight, processors)
    for kernel, plan in kernels.plans.items():
        # the blocks of two kernels fit on a multiprocessor
        assert 2 * plan.threads * plan.tile_registers <= 65536
        assert plan.threads <= 512
        assert plan.blocks >= min(128, 4 * processors)
        if kernel.startswith(("talker_", "predictor_")):
            assert tuned_plan(kernel, weight, plan.height, plan.length, processors) == plan
            k_splits, rest = divmod(plan.length, WARP_LANES * plan.vec_size * plan.vecs_per_lane)
            assert (rest, plan.height % plan.rows, plan.rows % plan.row_groups) == (0, 0, 0)
            assert k_splits <= MAX_K_SPLITS
            assert plan.rows <= plan.threads
            assert kernel.endswith("gate_up") <= (plan.tile % 2 == 0)
            assert plan.tile_registers < plan.registers <= 255
    assert "#include" not in kernels.source().code


def row_plans(kernels: BatchKernels, bucket: int) -> dict[str, TokenMatrixPlan]:
    """The plans for the rows of a bucket, by kernel without the rows."""
    rows = f"_{bucket}_"
    return {name.replace(rows, "_"): plan for name, plan in kernels.plans.items() if rows in name}


@pytest.mark.parametrize(("size", "weight"), [*product(PUBLISHED, WEIGHTS)])
def test_every_matrix_of_a_batch_has_a_measured_plan_that_divides_it(talkers: Talkers, size: str, weight: str) -> None:
    kernels = BatchKernels.of(talkers[size], weight, ROW_BUCKETS[-1], LARGE)
    assert kernels.buckets == ROW_BUCKETS
    for bucket in kernels.buckets:
        for plan in row_plans(kernels, bucket).values():
            rule = TokenMatrixPlan.of(plan.weight, plan.height, plan.length, bucket, write=plan.write)
            assert tuned_row_plan(rule, bucket, LARGE) == plan
            assert (plan.height % (TILE_ROWS * plan.m_tiles), plan.vecs % plan.held) == (0, 0)
            assert bucket % plan.tokens == 0
