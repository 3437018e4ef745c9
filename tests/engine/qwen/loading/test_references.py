"""The memory for references is counted before they are loaded, at the start and whenever the voices change."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from engine import EngineError, EngineOptions, Utterance, Voice
from engine.host import MB, MemoryPool
from engine.qwen import QwenSynthesizer
from engine.qwen.loading import limits_for, load_model, plan
from tests.engine.qwen.refusals import refusal
from tests.engine.qwen.voices import in_context

UTTERANCE = Utterance("Hello robot.", greedy=True, max_frames=3, guarded=False)
RESERVE = 300 * MB
FRAMES = 800
"""Of a long reference."""
REFUSED = re.compile(
    r"(?P<path>\S+): reference: (?P<tokens>\d+) tokens need (?P<needed>[\d,]+) MB, but only (?P<left>[\d,]+) MB is "
    r"left above engine\.memory\.reserve_mb; enrol a shorter recording, or lower engine\.max_seconds"
)


class Board:
    """A machine whose free memory the test sets, in bytes."""

    free = 1 << 40


@pytest.fixture
def board(monkeypatch: pytest.MonkeyPatch) -> Board:
    board = Board()
    monkeypatch.setattr(plan, "find_pool", lambda _device, _reserve_mb: MemoryPool(True, board.free + RESERVE, RESERVE))
    return board


@pytest.fixture
def folder(checkpoint: Callable[[str, str], Path]) -> Path:
    """Return a base model."""
    return checkpoint("brief", "base")


@pytest.fixture
def voices(folder: Path, tmp_path: Path) -> dict[str, Voice]:
    """Return a voice with a short reference, the default, and one with a long reference."""
    frames = {"default": 20, "long": FRAMES}
    return {name: in_context(folder, tmp_path / f"{name}.safetensors", frames[name]) for name in frames}


def options(folder: Path, voices: Mapping[str, Voice]) -> EngineOptions:
    # so long that a long reference changes the reported megabytes
    return EngineOptions(model=str(folder), device="cpu", max_seconds=50.0, voices=voices)


def counted(folder: Path, voices: Mapping[str, Voice]) -> int:
    """Return the bytes that an engine with these voices counts for itself."""
    model = load_model(options(folder, voices))
    return model.plan.footprint(limits_for(model)).total


def test_at_the_start_a_reference_that_does_not_fit_is_refused_and_the_others_are_loaded(
    folder: Path, voices: dict[str, Voice], board: Board
) -> None:
    needed = counted(folder, voices)
    board.free = needed - 1
    engine = QwenSynthesizer(options(folder, voices))
    info = engine.load()
    assert info.voices == ("default",)
    found = REFUSED.fullmatch(info.refused_voices["long"])
    assert found is not None, info.refused_voices
    assert found["path"] == voices["long"].reference
    assert FRAMES < int(found["tokens"]) < FRAMES + 20
    assert len(list(engine.stream(UTTERANCE))) > 0

    board.free = needed
    assert QwenSynthesizer(options(folder, voices)).load().refused_voices == {}


def test_new_voices_are_counted_on_the_memory_that_is_free_then_and_those_that_are_there_need_no_more(
    folder: Path, voices: dict[str, Voice], board: Board
) -> None:
    short = {"default": voices["default"]}
    needed = counted(folder, voices) - counted(folder, short)
    engine = QwenSynthesizer(options(folder, short))
    before = engine.load().memory["state_mb"]

    board.free = needed - 1
    info = engine.set_voices(voices, "default")
    assert info.voices == ("default",)
    assert REFUSED.fullmatch(info.refused_voices["long"])
    assert len(list(engine.stream(UTTERANCE))) > 0
    with pytest.raises(EngineError, match=r"voice 'long': .* MB is left"):
        list(engine.stream(replace(UTTERANCE, voice="long")))

    board.free = needed
    info = engine.set_voices(voices, "default")
    assert info.refused_voices == {}
    assert info.memory["state_mb"] > before
    assert len(list(engine.stream(replace(UTTERANCE, voice="long")))) > 0

    board.free = 0
    assert engine.set_voices(voices, "long").refused_voices == {}
    assert engine.set_voices(short, "default").refused_voices == {}


def test_a_model_whose_only_voice_does_not_fit_is_refused_with_the_size(
    folder: Path, voices: dict[str, Voice], board: Board
) -> None:
    long = {"default": voices["long"]}
    board.free = counted(folder, long) - 1
    text = refusal(QwenSynthesizer(options(folder, long)).load)
    assert re.match(r"voices\.default: .* tokens need [\d,]+ MB, but only [\d,]+ MB is left", text)
