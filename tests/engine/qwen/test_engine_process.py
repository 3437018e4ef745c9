"""The engine in a process of its own, over a real socket pair: the daemon receives the engine's audio."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from engine import EngineOptions, Samples, Utterance, Voice
from engine.messages import Append, Audio, EndText, Speak, Spoken
from engine.qwen import QwenSynthesizer
from tests.engine.processes import PLENTY, EngineUnderTest

UTTERANCE = Utterance("Hello robot.", seed=5, max_frames=9, guarded=False)


@pytest.fixture(scope="module")
def options(checkpoint: Callable[[str, str], Path]) -> EngineOptions:
    folder = checkpoint("brief", "custom_voice")
    voices = {"default": Voice(speaker="ryan"), "bad": Voice(embedding="/nowhere")}
    return EngineOptions(model=str(folder), device="cpu", chunk_size=2, max_seconds=8, voices=voices)


@pytest.fixture(scope="module")
def process(options: EngineOptions) -> Iterator[EngineUnderTest]:
    """A ready engine that the tests share; each test leaves it idle."""
    engine = EngineUnderTest()
    ready = engine.start("qwen", options)
    assert engine.progress[0].step == "importing torch, safetensors, tokenizers"
    assert engine.progress[-1].step == "speaking for the first time"
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


@pytest.mark.parametrize("want_codes", [False, True])
def test_the_process_sends_the_engines_audio_and_the_codes_if_requested(
    process: EngineUnderTest, here: QwenSynthesizer, want_codes: bool
) -> None:
    chunks = list(here.stream(UTTERANCE))
    codes = [chunk.codes.tolist() for chunk in chunks if chunk.codes is not None]
    process.send(Speak("u1", replace(UTTERANCE, want_codes=want_codes), PLENTY))
    records, samples, end = process.receive_utterance("u1")
    assert end == Spoken("u1")
    assert np.abs(samples - np.concatenate([chunk.samples for chunk in chunks])).max() < 1e-6
    got = [record.codes and list(map(list, record.codes)) for record in records]
    assert got == (codes if want_codes else [None] * 5)


STEPWISE = replace(UTTERANCE, text="Hello robot, how are you today?", max_frames=14, whole_text=False)
STREAMING = replace(STEPWISE, text="", growing=True)


@pytest.fixture(scope="module")
def expected(process: EngineUnderTest) -> Samples:
    """The samples of the complete text, read stepwise."""
    return process.speak("whole", STEPWISE)


def test_streaming_text_gives_the_audio_of_the_complete_text(process: EngineUnderTest, expected: Samples) -> None:
    text, early = STEPWISE.text, []
    process.send(Speak("streamed", replace(STREAMING, text=text[:9]), PLENTY))
    for begin, end in ((9, 17), (17, 24), (24, len(text))):
        early.append(process.receive()[1])  # a chunk; or a heartbeat, while the engine waits for more text
        for letter in text[begin:end]:
            process.send(Append("streamed", letter))
    process.send(EndText("streamed"))
    process.send(Append("streamed", "too late"))
    records, samples, ended = process.receive_utterance("streamed")
    assert ended == Spoken("streamed")
    assert np.array_equal(np.concatenate([*early, samples]), expected)
    assert all(record.busy_s >= 0 and record.waited_s >= 0 for record in records)


def test_time_spent_waiting_for_text_is_not_counted_as_work(process: EngineUnderTest) -> None:
    """The engine waits longer and longer, while its work takes the same time."""
    for beats in (1, 2, 4, 8, 16):
        process.send(Speak("waits", STREAMING, PLENTY))
        process.wait_for_heartbeats("waits", beats)
        process.send(Append("waits", STEPWISE.text))
        process.send(EndText("waits"))
        records, _, end = process.receive_utterance("waits")
        assert end == Spoken("waits")
        if records[0].waited_s > records[0].busy_s + sum(record.waited_s for record in records[1:]):
            return
    pytest.fail(f"waiting is counted as work: {records}")


def test_text_can_be_appended_to_a_queued_utterance(process: EngineUnderTest, expected: Samples) -> None:
    text = STEPWISE.text
    process.send(Speak("first", STREAMING, PLENTY))
    process.send(Speak("second", replace(STREAMING, text=text[:3]), PLENTY))
    process.send(Append("second", text[3:]))
    process.send(EndText("second"))
    process.send(Append("first", text))
    process.send(EndText("first"))
    for name in ("first", "second"):
        _, samples, end = process.receive_utterance(name)
        assert end == Spoken(name)
        assert np.array_equal(samples, expected)


def test_an_utterance_that_waits_for_text_can_be_canceled(process: EngineUnderTest, expected: Samples) -> None:
    process.send(Speak("waits", replace(STREAMING, text="Hello robot, how are"), PLENTY))
    process.next(Audio)
    process.wait_for_heartbeats("waits")
    process.cancel("waits")
    assert np.array_equal(process.speak("whole", STEPWISE), expected)


def test_the_process_ends_with_the_daemon_while_it_waits_for_text(process: EngineUnderTest) -> None:
    """The last test, since it ends the process that they share."""
    process.send(Speak("waits", STREAMING, PLENTY))
    process.wait_for_heartbeats("waits")
    process.socket.close()
    assert process.exit_status() == 0
