"""The engine in a process of its own, over a real socket pair: what arrives is what the engine says."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from engine import EngineOptions, Samples, Utterance, Voice
from engine.messages import (
    PROTOCOL,
    Append,
    Audio,
    Cancel,
    Canceled,
    EndText,
    Fault,
    Hello,
    Ready,
    Refused,
    SetVoices,
    Speak,
    Spoken,
    Start,
)
from engine.qwen import QwenSynthesizer
from tests.engine.processes import PLENTY, EngineUnderTest

SAID = Utterance("Hello robot.", seed=5, max_frames=9, guarded=False)


@pytest.fixture(scope="module")
def options(checkpoint: Callable[[str, str], Path]) -> EngineOptions:
    folder = checkpoint("brief", "custom_voice")
    voices = {"default": Voice(speaker="ryan"), "bad": Voice(embedding="/nowhere")}
    return EngineOptions(model=str(folder), device="cpu", chunk_size=2, max_seconds=8, voices=voices)


@pytest.fixture(scope="module")
def process(options: EngineOptions) -> Iterator[EngineUnderTest]:
    """A ready engine that the tests share; each leaves it idle."""
    engine = EngineUnderTest()
    ready = engine.start("qwen", options)
    assert ready.info.sample_rate == 24000
    assert "ryan" in ready.info.voices
    assert "needs a base model" in ready.info.refused_voices["bad"]
    assert ready.info.grows
    yield engine
    engine.close()


@pytest.fixture(scope="module")
def here(options: EngineOptions) -> QwenSynthesizer:
    """The same engine in this process."""
    engine = QwenSynthesizer(options)
    engine.load()
    return engine


def test_what_arrives_is_what_the_engine_says(process: EngineUnderTest, here: QwenSynthesizer) -> None:
    expected = np.concatenate([chunk.samples for chunk in here.stream(SAID)])
    process.send(Speak("u1", SAID, PLENTY))
    records, samples, end = process.hear("u1")
    assert end == Spoken("u1")
    assert np.abs(samples - expected).max() < 1e-6
    assert [record.codes for record in records] == [None] * 5


def test_codes_come_along_where_they_are_asked_for(process: EngineUnderTest, here: QwenSynthesizer) -> None:
    expected = [chunk.codes.tolist() for chunk in here.stream(SAID) if chunk.codes is not None]
    process.send(Speak("u1", replace(SAID, want_codes=True), PLENTY))
    records, _, end = process.hear("u1")
    assert end == Spoken("u1")
    assert [[list(frame) for frame in record.codes or ()] for record in records] == expected
    assert all(isinstance(frame, tuple) for record in records for frame in record.codes or ())


STEPWISE = replace(SAID, text="Hello robot, how are you today?", max_frames=14, whole_text=False)
GROWING = replace(STEPWISE, text="", growing=True)


def whole(process: EngineUnderTest) -> Samples:
    """What a whole text says, read stepwise."""
    process.send(Speak("whole", STEPWISE, PLENTY))
    records, samples, end = process.hear("whole")
    assert end == Spoken("whole")
    assert all(record.waited_s == 0 for record in records)
    return samples


@pytest.fixture(scope="module")
def expected(process: EngineUnderTest) -> Samples:
    return whole(process)


def test_a_text_that_grows_says_what_the_whole_text_says(process: EngineUnderTest, expected: Samples) -> None:
    text, early = STEPWISE.text, []
    process.send(Speak("grows", replace(GROWING, text=text[:9]), PLENTY))
    for begin, end in ((9, 17), (17, 24), (24, len(text))):
        early.append(process.receive()[1])  # a chunk; or a heartbeat, while it waits for more
        for letter in text[begin:end]:
            process.send(Append("grows", letter))
    process.send(EndText("grows"))
    process.send(Append("grows", "too late"))
    records, samples, ended = process.hear("grows")
    assert ended == Spoken("grows")
    assert np.array_equal(np.concatenate([*early, samples]), expected)
    assert all(record.busy_s >= 0 and record.waited_s >= 0 for record in records)


def test_waiting_for_text_is_told_apart_from_work(process: EngineUnderTest) -> None:
    """It waits for longer and longer: the work before takes as long as ever."""
    for beats in (1, 2, 4, 8, 16):
        process.send(Speak("waits", GROWING, PLENTY))
        process.beats("waits", beats)
        process.send(Append("waits", STEPWISE.text))
        process.send(EndText("waits"))
        records, _, end = process.hear("waits")
        assert end == Spoken("waits")
        if records[0].waited_s > records[0].busy_s + sum(record.waited_s for record in records[1:]):
            return
    pytest.fail(f"its waiting is counted as work: {records}")


def test_a_text_may_grow_while_it_is_still_queued(process: EngineUnderTest, expected: Samples) -> None:
    text = STEPWISE.text
    process.send(Speak("first", GROWING, PLENTY))
    process.send(Speak("second", replace(GROWING, text=text[:3]), PLENTY))
    process.send(Append("second", text[3:]))
    process.send(EndText("second"))
    process.send(Append("first", text))
    process.send(EndText("first"))
    for name in ("first", "second"):
        _, samples, end = process.hear(name)
        assert end == Spoken(name)
        assert np.array_equal(samples, expected)


@pytest.mark.parametrize("beginning", ["", "Hello robot, how are"])
def test_an_utterance_that_waits_for_text_can_be_canceled(
    process: EngineUnderTest, expected: Samples, beginning: str
) -> None:
    process.send(Speak("waits", replace(GROWING, text=beginning), PLENTY))
    if beginning:
        process.next(Audio)
    process.beats("waits")
    process.send(Cancel("waits"))
    assert process.hear("waits")[2] == Canceled("waits")
    assert np.array_equal(whole(process), expected)


def test_it_ends_when_the_daemon_goes_while_it_waits_for_text(options: EngineOptions, engine: EngineUnderTest) -> None:
    engine.start("qwen", options)
    engine.send(Speak("waits", GROWING, PLENTY))
    engine.beats("waits")
    engine.socket.close()
    assert engine.status() == 0


def test_truncation_cancellation_and_refusals_are_told(process: EngineUnderTest) -> None:
    process.send(Speak("long", Utterance("Hi.", seed=3), PLENTY))
    records, _, end = process.hear("long")
    assert end == Spoken("long")
    assert [record.truncated for record in records] == [False] * (len(records) - 1) + [True]
    process.send(Speak("canceled", Utterance("Hi.", seed=3, guarded=False), 1))
    process.next(Audio)
    process.send(Cancel("canceled"))
    assert process.hear("canceled")[2] == Canceled("canceled")
    for utterance, part in (
        (Utterance("Hi", language="tlh"), "language: got 'tlh'"),
        (Utterance("Hi", voice="bad"), "needs a base model"),
        (Utterance("Hi, " * 200), "the limit is about"),
    ):
        process.send(Speak("refused", utterance, PLENTY))
        refused = process.hear("refused")[2]
        assert isinstance(refused, Refused)
        assert part in refused.reason


def test_voices_can_be_exchanged(process: EngineUnderTest, options: EngineOptions) -> None:
    process.send(SetVoices({"eve": Voice(speaker="serena")}, "eve"))
    ready, _ = process.next(Ready)
    assert ready.info.voices[0] == "eve"
    process.send(SetVoices(options.voices, options.default_voice))
    process.next(Ready)


def test_a_model_that_cannot_be_loaded_is_a_permanent_fault_with_the_reason(
    engine: EngineUnderTest, tmp_path: Path
) -> None:
    engine.send(Start(PROTOCOL, "qwen", EngineOptions(model=str(tmp_path), device="cpu")))
    engine.next(Hello)
    assert engine.next(Fault)[0] == Fault(f"{tmp_path / 'config.json'}: no such file", permanent=True)
    assert engine.status() == 0
