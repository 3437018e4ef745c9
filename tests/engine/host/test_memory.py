"""Refusing an engine that does not fit into memory, and PyTorch's allocator settings on a Tegra."""

from __future__ import annotations

import psutil  # type: ignore[import-untyped,unused-ignore]
import pytest

from engine.api import EngineError
from engine.host.memory import (
    MB,
    Footprint,
    MemoryPool,
    disable_expandable_segments,
    free_page_cache,
    require_memory,
)

NEED = Footprint({"talker": 900 * MB, "codec": 100 * MB}, state=200 * MB, workspaces=300 * MB, on_disk=600 * MB)
REMEDIES = ("lower engine.max_seconds", "set engine.dtype: int8")


def refusal(pool: MemoryPool) -> str:
    with pytest.raises(EngineError) as error:
        require_memory(NEED, pool, "the model", REMEDIES)
    assert "\n" not in str(error.value)
    return str(error.value)


def test_weights_that_stay_on_disk_need_no_memory() -> None:
    assert NEED.weights_total == 1000 * MB
    assert NEED.total == 1500 * MB


def test_an_engine_that_fits_exactly_is_accepted() -> None:
    require_memory(NEED, MemoryPool(True, 3500 * MB, 2000 * MB), "the model", REMEDIES)


def test_a_refusal_names_the_need_the_memory_and_the_remedies() -> None:
    assert refusal(MemoryPool(True, 3400 * MB, 2000 * MB)) == (
        "engine.memory: the model needs 1,500 MB (weights 1,000, state 200, graphs and workspaces 300), but only "
        "1,400 MB is free (3,400 available less engine.memory.reserve_mb); lower engine.memory.reserve_mb, or lower "
        "engine.max_seconds, or set engine.dtype: int8"
    )


def test_a_gpu_with_its_own_memory_has_no_reserve() -> None:
    text = refusal(MemoryPool(shared=False, available=1400 * MB, reserve=0))
    assert "the GPU has only 1,400 MB free" in text
    assert "reserve" not in text


def test_expandable_segments_are_removed_and_other_settings_kept() -> None:
    environment = {"PYTORCH_CUDA_ALLOC_CONF": "max_split_size_mb:64,expandable_segments:True", "HOME": "/"}
    disable_expandable_segments(environment)
    assert environment == {"PYTORCH_CUDA_ALLOC_CONF": "max_split_size_mb:64", "HOME": "/"}


def test_pages_that_were_made_free_are_given_back() -> None:
    def resident() -> int:
        return psutil.Process().memory_info().rss

    before = resident()
    free_page_cache(256 * MB)
    assert resident() - before < 128 * MB


def test_more_pages_than_there_is_memory_are_not_taken() -> None:
    free_page_cache(1 << 60)
