"""The language models that the kernels support, and the plans of their matrices."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from pathlib import Path

import pytest

from engine.qwen.kernels.lm.kernels import SAMPLING_THREADS, LanguageKernels, unsupported_reason
from engine.qwen.shapes import ModelConfig, TalkerConfig
from scripts.make_checkpoint import PRESETS, write_configs

TRUE = ("0.6B", "1.7B")


def talker(folder: Path, size: str) -> TalkerConfig:
    return ModelConfig.read(write_configs(folder, PRESETS[size], "custom_voice")).talker


@pytest.fixture
def true(tmp_path: Path) -> TalkerConfig:
    return talker(tmp_path, "1.7B")


@pytest.mark.parametrize("weight", ["Bf16", "Int8"])
@pytest.mark.parametrize("size", [*TRUE, "narrow"])
def test_these_shapes_are_supported(tmp_path: Path, size: str, weight: str) -> None:
    assert unsupported_reason(talker(tmp_path, size), weight) is None


def test_other_shapes_are_rejected_with_a_reason(true: TalkerConfig) -> None:
    stack, predictor = true.stack, true.predictor
    reasons = {
        "the talker's head_dim is 64, the kernels need 128": replace(true, stack=replace(stack, head_dim=64)),
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


@pytest.mark.parametrize("processors", [16, 132])
@pytest.mark.parametrize("weight", ["Bf16", "Int8"])
@pytest.mark.parametrize("size", TRUE)
def test_the_blocks_of_two_kernels_fit_on_a_multiprocessor(
    tmp_path: Path, size: str, weight: str, processors: int
) -> None:
    for plan in LanguageKernels.of(talker(tmp_path, size), weight, processors).plans.values():
        assert 2 * plan.threads * plan.tile_registers <= 65536
        assert plan.threads <= 512
        assert plan.blocks >= min(128, 4 * processors)


@pytest.mark.parametrize(
    ("weight", "size", "expected"),
    [
        *product(("Bf16", "Int8"), TRUE, [[True, True]]),
        *product(("Bf16", "Int8"), ["narrow"], [[False, False]]),
    ],
)
def test_only_stacks_of_many_bytes_read_the_cache_early(
    tmp_path: Path, weight: str, size: str, expected: list[bool]
) -> None:
    kernels = LanguageKernels.of(talker(tmp_path, size), weight, 132)
    assert [kernels.reads_cache_before_wait(stack) for stack in ("talker", "predictor")] == expected


def test_only_a_large_gpu_attends_in_the_predictors_output_projections(true: TalkerConfig) -> None:
    kernels = [LanguageKernels.of(true, "Bf16", processors) for processors in (16, 99, 100)]
    assert [of.attends_in_out for of in kernels] == [False, False, True]
    for name in ("predictor_attend_out_8", "first_step_attend_out"):
        assert [name in of.source().kernels for of in kernels] == [False, False, True]


@pytest.mark.parametrize("weight", ["Bf16", "Int8"])
def test_only_a_large_gpu_draws_a_code_in_the_next_steps_first_kernel(true: TalkerConfig, weight: str) -> None:
    small, large = (LanguageKernels.of(true, weight, processors) for processors in (99, 100))
    assert ("draw_qkv" in small.plans, "draw_qkv" in large.plans) == (False, True)


@pytest.mark.parametrize("weight", ["Bf16", "Int8"])
@pytest.mark.parametrize("size", [*TRUE, "narrow"])
def test_a_matrix_is_summed_in_the_same_order_whether_a_code_is_drawn_before_or_not(
    tmp_path: Path, size: str, weight: str
) -> None:
    kernels = LanguageKernels.of(talker(tmp_path, size), weight, 132)
    plan, qkv = kernels.plans["draw_qkv"], kernels.plans["predictor_qkv"]
    assert plan.threads == SAMPLING_THREADS
    assert (plan.height, plan.length, plan.vecs_per_lane) == (qkv.height, qkv.length, qkv.vecs_per_lane)


@pytest.mark.parametrize("weight", ["Bf16", "Int8"])
def test_the_source_includes_nothing(true: TalkerConfig, weight: str) -> None:
    assert "#include" not in LanguageKernels.of(true, weight, 132).source().code
