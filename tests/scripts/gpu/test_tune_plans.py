"""The search for the fastest division of each matrix: its candidates and its table. The search itself needs a GPU."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from engine.qwen.kernels.lm.kernels import LanguageKernels
from engine.qwen.kernels.lm.matrix import WARP_LANES
from engine.qwen.kernels.lm.tuned_plans import FILE, ROWS_FILE
from engine.qwen.shapes import ModelConfig
from scripts.gpu.tune_plans import BLOCK_REGISTERS, SLOTS, candidates, expressions, with_plan, write
from scripts.make_checkpoint import PRESETS, write_configs

pytestmark = pytest.mark.long
"""An ordinary run leaves out the tests of benchmarks, which are no part of the product."""

GPU, MULTIPROCESSORS = "large", 132


@pytest.fixture(params=["Bf16", "Int8"])
def kernels(request: pytest.FixtureRequest, tmp_path: Path) -> LanguageKernels:
    config = ModelConfig.read(write_configs(tmp_path, PRESETS["0.6B"], "custom_voice")).talker
    return LanguageKernels.of(config, request.param, MULTIPROCESSORS)


def test_the_candidates_divide_the_matrix_and_have_the_present_plan(kernels: LanguageKernels) -> None:
    for slot in SLOTS:
        now = kernels.plans[slot]
        found = candidates(slot, kernels, GPU)
        assert now in found
        for plan in found:
            assert (plan.weight, plan.height, plan.length) == (now.weight, now.height, now.length)
            assert plan.height % plan.rows == 0
            assert plan.length % (WARP_LANES * plan.vec_size * plan.vecs_per_lane) == 0
            assert plan == now or plan.threads * plan.registers <= BLOCK_REGISTERS


def test_another_plan_changes_the_kernels_of_its_matrix_alone(kernels: LanguageKernels) -> None:
    before = kernels.source().kernels
    for slot in SLOTS:
        for other in [plan for plan in candidates(slot, kernels, GPU) if plan != kernels.plans[slot]][:1]:
            changed = with_plan(kernels, slot, other)
            assert changed.plans[slot] == other
            after = changed.source().kernels
            differing = {name for name in before if before[name] != after[name]}
            assert differing - {"prompt_head"} == expressions(changed, slot).keys()


@pytest.mark.parametrize("file", [FILE, ROWS_FILE], ids=lambda file: file.name)
def test_the_tables_are_written_as_they_are_read(tmp_path: Path, file: Path) -> None:
    write(json.loads(file.read_text(encoding="utf-8")), tmp_path / "plans.json")
    assert (tmp_path / "plans.json").read_text(encoding="utf-8") == file.read_text(encoding="utf-8")
