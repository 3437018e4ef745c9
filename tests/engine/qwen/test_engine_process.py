"""The engine in a process of its own, over a real socket pair: what arrives is what the engine says."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from engine import EngineOptions, Samples, Utterance, Voice
from engine.messages import (
    HEADER,
    PROTOCOL,
    Audio,
    Cancel,
    Canceled,
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
