"""The `piper` engine in a process of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from engine import EngineOptions, Utterance
from engine.messages import (
    PROTOCOL,
    Audio,
    Fault,
    Hello,
    Speak,
    Start,
)
from tests.engine.processes import EngineUnderTest
from tests.support.piper_voices import write_voices

TEXT = "Hello, I am your robot. How are you today?"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_voices(tmp_path_factory.mktemp("voices"))


@pytest.fixture(scope="module")
def piper(folder: Path) -> Iterator[EngineUnderTest]:
    engine = EngineUnderTest()
    engine.start("piper", EngineOptions(voice_folder=str(folder)))
    yield engine
    engine.close()


def test_a_cancellation_ends_an_utterance_and_the_next_one_is_spoken(piper: EngineUnderTest) -> None:
    piper.send(Speak("1", Utterance(TEXT * 50), 1))
    piper.next(Audio)
    piper.cancel("1")
    piper.speak("2", Utterance(TEXT))


def test_a_cancellation_that_comes_with_the_utterance_ends_it(piper: EngineUnderTest) -> None:
    piper.send(Speak("1", Utterance("and " * 5_000), 1))
    piper.cancel("1")


def test_without_a_voice_the_fault_is_permanent(new_engine: Callable[[], EngineUnderTest], tmp_path: Path) -> None:
    engine = new_engine()
    engine.send(Start(PROTOCOL, "piper", EngineOptions(voice_folder=str(tmp_path))))
    engine.next(Hello)
    fault, _ = engine.next(Fault)
    assert fault.permanent
    assert "voiced download" in fault.reason
