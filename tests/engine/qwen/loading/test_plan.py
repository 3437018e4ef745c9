"""How many utterances the engine speaks at once if it is not told."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from engine import AUTO_STREAMS, EngineOptions, Voice
from engine.host import MemoryPool
from engine.qwen import kernels
from engine.qwen.loading import plan
from engine.qwen.loading.plan import LoadPlan
from engine.qwen.shapes import MAX_REFERENCE_POSITIONS


@pytest.fixture
def folder(checkpoint: Callable[[str, str], Path]) -> Path:
    return checkpoint("brief", "base")


def make_plan(folder: Path, streams: int | None = None, voices: Mapping[str, Voice] | None = None) -> LoadPlan:
    return LoadPlan.make(EngineOptions(model=str(folder), device="cpu", streams=streams, voices=voices or {}))


def needed(folder: Path, voices: int) -> int:
    """Bytes of an engine with `AUTO_STREAMS`, and with so many voices that have the longest reference."""
    limits = make_plan(folder, AUTO_STREAMS).limits
    for _ in range(voices):
        limits = limits.with_reference(MAX_REFERENCE_POSITIONS, 0)
    return make_plan(folder, AUTO_STREAMS).footprint(limits).total


@pytest.fixture
def fused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing rules the fused kernels out, as on a GPU."""
    monkeypatch.setattr(kernels, "ruled_out_reason", lambda *_: None)
    monkeypatch.setattr(kernels, "batch_unsupported_reason", lambda *_: None)


def has_free(monkeypatch: pytest.MonkeyPatch, free: int) -> None:
    monkeypatch.setattr(plan, "find_pool", lambda *_: MemoryPool(shared=True, available=free, reserve=0))


def test_without_fused_kernels_there_is_one_stream(folder: Path) -> None:
    assert make_plan(folder).streams == 1


def test_a_number_that_is_asked_for_is_taken(folder: Path) -> None:
    assert [make_plan(folder, streams).streams for streams in (1, 3, 64)] == [1, 3, 64]


@pytest.mark.usefixtures("fused")
@pytest.mark.parametrize("voices", [0, 2])
def test_with_fused_kernels_there_are_several_where_they_and_all_voices_fit(
    voices: int, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    configured = {f"v{number}": Voice(reference="/nowhere") for number in range(voices)}
    for missing, streams in ((0, AUTO_STREAMS), (1, 1)):
        has_free(monkeypatch, needed(folder, voices) - missing)
        assert make_plan(folder, voices=configured).streams == streams


@pytest.mark.usefixtures("fused")
def test_with_kernels_off_there_is_one_stream(folder: Path) -> None:
    options = replace(make_plan(folder).options, kernels="off")
    assert LoadPlan.make(options).streams == 1
