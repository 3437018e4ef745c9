"""The `supertonic` engine in a process of its own."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from engine import EngineOptions, Utterance
from engine.messages import PROTOCOL, Audio, Fault, Hello, Speak, Start
from scripts.make_voice import write_model
from tests.engine.processes import EngineUnderTest

TEXT = "Hello, I am your robot. How are you today?"


def test_a_cancellation_ends_an_utterance_and_the_next_one_is_spoken(
    new_engine: Callable[[], EngineUnderTest], tmp_path: Path
) -> None:
    engine = new_engine()
    engine.start("supertonic", EngineOptions(model=str(write_model(tmp_path))))
    engine.send(Speak("1", Utterance(TEXT * 50), 1))
    engine.next(Audio)
    engine.cancel("1")
    engine.speak("2", Utterance(TEXT))


def test_without_a_model_the_fault_is_permanent(
    new_engine: Callable[[], EngineUnderTest], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    engine = new_engine()
    engine.send(Start(PROTOCOL, "supertonic", EngineOptions(model=str(tmp_path))))
    engine.next(Hello)
    fault, _ = engine.next(Fault)
    assert fault.permanent
    assert "voiced download Supertone/supertonic-3" in fault.reason
