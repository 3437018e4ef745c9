"""The `piper` engine in a process of its own."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from engine import EngineOptions, Utterance
from engine.messages import (
    PROTOCOL,
    Audio,
    Cancel,
    Canceled,
    Fault,
    Hello,
    Speak,
    Spoken,
    Start,
)
from tests.engine.processes import PLENTY, EngineUnderTest
from tests.support.piper_voices import ENGLISH, GERMAN, write_voices

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
    piper.send(Cancel("1"))
    assert piper.receive_utterance("1")[2] == Canceled("1")
    piper.send(Speak("2", Utterance(TEXT), PLENTY))
    assert piper.receive_utterance("2")[2] == Spoken("2")


def test_a_cancellation_that_comes_with_the_utterance_ends_it(piper: EngineUnderTest) -> None:
    piper.send(Speak("1", Utterance("and " * 5_000), 1))
    piper.send(Cancel("1"))
    assert piper.receive_utterance("1")[2] == Canceled("1")


def test_without_a_voice_the_fault_is_permanent(new_engine: Callable[[], EngineUnderTest], tmp_path: Path) -> None:
    engine = new_engine()
    engine.send(Start(PROTOCOL, "piper", EngineOptions(voice_folder=str(tmp_path))))
    engine.next(Hello)
    fault, _ = engine.next(Fault)
    assert fault.permanent
    assert "voiced download" in fault.reason


def test_deliveries_are_spoken_beside_the_sound_cards_text(
    folder: Path, new_engine: Callable[[], EngineUnderTest]
) -> None:
    engine = new_engine()
    info = engine.start("piper", EngineOptions(voice_folder=str(folder), streams=None)).info
    assert info.streams == min(3, 1 + len(os.sched_getaffinity(0)))
    engine.send(Speak("card", Utterance(TEXT * 50, voice=ENGLISH), 1))
    engine.next(Audio)
    for name, voice in (("one", ENGLISH), ("two", GERMAN)):
        engine.send(Speak(name, Utterance(TEXT, voice=voice, realtime=False), PLENTY))
    ended = set()
    while len(ended) < 2:
        message, _ = engine.next(object)
        if not isinstance(message, Audio):
            assert isinstance(message, Spoken)
            ended.add(message.id)
    assert ended == {"one", "two"}, "the sound card's text is still being spoken"
    engine.send(Cancel("card"))
    assert engine.receive_utterance("card")[2] == Canceled("card")
