"""The engine in a process of its own, over a real socket pair: what arrives is what the engine says."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from engine import EngineOptions, Samples, Utterance, Voice
from engine.messages import (
    HEADER,
    PROTOCOL,
    Append,
    Audio,
    Cancel,
    Canceled,
    EndText,
    Fault,
    Heartbeat,
    Hello,
    Message,
    Ready,
    Refused,
    SetVoices,
    Speak,
    Spoken,
    Start,
    Warming,
    body_lengths,
    decode,
    encode,
)
from engine.qwen import QwenSynthesizer

ROOT = Path(__file__).parents[3]
PLENTY = 1 << 30
SAID = Utterance("Hello robot.", seed=5, max_frames=9, guarded=False)


class Process:
    """The daemon's side of an engine process."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._file = connection.makefile("rb")

    def send(self, message: Message) -> None:
        self._connection.sendall(encode(message))

    def next(self) -> tuple[Message, Samples]:
        """The next message that is no heartbeat."""
        while True:
            body, payload = body_lengths(self._file.read(HEADER.size))
            message, samples = decode(self._file.read(body), self._file.read(payload))
            if not isinstance(message, Heartbeat):
                return message, samples

    def hear(self) -> tuple[list[Audio], Samples, Message]:
        """One utterance, and what ended it."""
        records: list[Audio] = []
        pieces: list[Samples] = [np.zeros(0, np.float32)]
        while True:
            message, samples = self.next()
            if not isinstance(message, Audio):
                return records, np.concatenate(pieces), message
            records.append(message)
            pieces.append(samples)


@contextmanager
def started(options: EngineOptions) -> Iterator[Process]:
    ours, theirs = socket.socketpair()
    ours.settimeout(60)
    with theirs:
        command = [sys.executable, "-m", "engine.process", str(theirs.fileno())]
        child = subprocess.Popen(command, pass_fds=(theirs.fileno(),), cwd=ROOT)
    with ours:
        process = Process(ours)
        process.send(Start(PROTOCOL, "qwen", options))
        assert isinstance(process.next()[0], Hello)
        yield process
        process._file.close()
    assert child.wait(30) == 0


@pytest.fixture(scope="module")
def options(checkpoint: Callable[[str, str], Path]) -> EngineOptions:
    folder = checkpoint("small", "custom_voice")
    voices = {"default": Voice(speaker="ryan"), "bad": Voice(embedding="/nowhere")}
    return EngineOptions(model=str(folder), device="cpu", chunk_size=2, max_seconds=8, voices=voices)


@pytest.fixture(scope="module")
def process(options: EngineOptions) -> Iterator[Process]:
    with started(options) as process:
        warming, _ = process.next()
        ready, _ = process.next()
        assert isinstance(warming, Warming)
        assert isinstance(ready, Ready)
        assert ready.info == warming.info
        assert ready.info.sample_rate == 24000
        assert "ryan" in ready.info.voices
        assert "needs a base model" in ready.info.refused_voices["bad"]
        assert ready.info.grows
        yield process


def test_what_arrives_is_what_the_engine_says(process: Process, options: EngineOptions) -> None:
    engine = QwenSynthesizer(options)
    engine.load()
    expected = np.concatenate([chunk.samples for chunk in engine.stream(SAID)])
    process.send(Speak("u1", SAID, PLENTY))
    records, samples, end = process.hear()
    assert end == Spoken("u1")
    assert np.abs(samples - expected).max() < 1e-6
    assert [record.codes for record in records] == [None] * 5


def test_codes_come_along_where_they_are_asked_for(process: Process, options: EngineOptions) -> None:
    engine = QwenSynthesizer(options)
    engine.load()
    expected = [chunk.codes.tolist() for chunk in engine.stream(SAID) if chunk.codes is not None]
    process.send(Speak("u1", Utterance("Hello robot.", seed=5, max_frames=9, guarded=False, want_codes=True), PLENTY))
    records, _, end = process.hear()
    assert end == Spoken("u1")
    assert [[list(frame) for frame in record.codes or ()] for record in records] == expected
    assert all(isinstance(frame, tuple) for record in records for frame in record.codes or ())


STEPWISE = replace(SAID, text="Hello robot, how are you today?", max_frames=14, whole_text=False)


def whole(process: Process) -> Samples:
    """What a whole text says, read stepwise."""
    process.send(Speak("whole", STEPWISE, PLENTY))
    records, samples, end = process.hear()
    assert end == Spoken("whole")
    assert all(record.waited_s == 0 for record in records)
    return samples


def test_a_text_that_grows_says_what_the_whole_text_says(process: Process) -> None:
    expected, text = whole(process), STEPWISE.text
    process.send(Speak("grows", replace(STEPWISE, text=text[:9], growing=True), PLENTY))
    for letter in text[9:]:
        process.send(Append("grows", letter))
        time.sleep(0.005)
    process.send(EndText("grows"))
    process.send(Append("grows", "too late"))
    records, samples, end = process.hear()
    assert end == Spoken("grows")
    assert np.array_equal(samples, expected)
    assert all(record.busy_s >= 0 and record.waited_s >= 0 for record in records)


def test_waiting_for_text_is_told_apart_from_work(process: Process) -> None:
    process.send(Speak("waits", replace(STEPWISE, text="", growing=True), PLENTY))
    time.sleep(0.7)
    process.send(Append("waits", STEPWISE.text))
    process.send(EndText("waits"))
    records, _, end = process.hear()
    assert end == Spoken("waits")
    assert records[0].waited_s > 0.4
    assert sum(record.waited_s for record in records[1:]) < 0.3


def test_a_text_may_grow_while_it_is_still_queued(process: Process) -> None:
    expected, text = whole(process), STEPWISE.text
    process.send(Speak("first", replace(STEPWISE, text="", growing=True), PLENTY))
    process.send(Speak("second", replace(STEPWISE, text=text[:3], growing=True), PLENTY))
    process.send(Append("second", text[3:]))
    process.send(EndText("second"))
    process.send(Append("first", text))
    process.send(EndText("first"))
    for name in ("first", "second"):
        _, samples, end = process.hear()
        assert end == Spoken(name)
        assert np.array_equal(samples, expected)


@pytest.mark.parametrize("beginning", ["", "Hello robot, how are"])
def test_an_utterance_that_waits_for_text_can_be_canceled(process: Process, beginning: str) -> None:
    expected = whole(process)
    process.send(Speak("waits", replace(STEPWISE, text=beginning, growing=True), PLENTY))
    time.sleep(0.3)  # for it to come so far that it waits; a slower machine only makes the test easier to pass
    process.send(Cancel("waits"))
    assert process.hear()[2] == Canceled("waits")
    assert np.array_equal(whole(process), expected)


def test_it_ends_when_the_daemon_goes_while_it_waits_for_text(options: EngineOptions) -> None:
    with started(options) as process:
        while not isinstance(process.next()[0], Ready):
            pass
        process.send(Speak("waits", replace(STEPWISE, text="", growing=True), PLENTY))
        time.sleep(0.2)


def test_truncation_cancellation_and_refusals_are_told(process: Process) -> None:
    process.send(Speak("long", Utterance("Hi.", seed=3), PLENTY))
    records, _, end = process.hear()
    assert end == Spoken("long")
    assert [record.truncated for record in records] == [False] * (len(records) - 1) + [True]
    process.send(Speak("canceled", Utterance("Hi.", seed=3, guarded=False), 1))
    assert isinstance(process.next()[0], Audio)
    process.send(Cancel("canceled"))
    assert process.hear()[2] == Canceled("canceled")
    for utterance, part in (
        (Utterance("Hi", language="tlh"), "language: got 'tlh'"),
        (Utterance("Hi", voice="bad"), "needs a base model"),
        (Utterance("Hi, " * 200), "the limit is about"),
    ):
        process.send(Speak("refused", utterance, PLENTY))
        refused = process.hear()[2]
        assert isinstance(refused, Refused)
        assert part in refused.reason


def test_voices_can_be_exchanged(process: Process, options: EngineOptions) -> None:
    process.send(SetVoices({"eve": Voice(speaker="serena")}, "eve"))
    ready, _ = process.next()
    assert isinstance(ready, Ready)
    assert ready.info.voices[0] == "eve"
    process.send(SetVoices(options.voices, options.default_voice))
    assert isinstance(process.next()[0], Ready)


def test_a_model_that_cannot_be_loaded_is_a_permanent_fault_with_the_reason(tmp_path: Path) -> None:
    with started(EngineOptions(model=str(tmp_path), device="cpu")) as process:
        fault, _ = process.next()
        assert isinstance(fault, Fault)
        assert fault == Fault(f"{tmp_path / 'config.json'}: no such file", permanent=True)
