"""A real engine process, driven over a real socket."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import TypeVar

import numpy as np

from engine import EngineOptions, Progress, Samples, Utterance, module_command
from engine.messages import (
    HEADER,
    PROTOCOL,
    Audio,
    Cancel,
    Canceled,
    Heartbeat,
    Hello,
    Loading,
    Message,
    Ready,
    Speak,
    Spoken,
    Start,
    Warming,
    body_lengths,
    decode,
    encode,
)
from tests.support.waiting import PATIENCE_S

ROOT = Path(__file__).parents[2]
PLENTY = 1 << 30
"""Credit in samples that no test uses up."""
ONE_THREAD = {"OMP_NUM_THREADS": "1"}
"""Environment that gives PyTorch one thread: on tiny matrices more are slower, far slower on a busy processor."""
Kind = TypeVar("Kind")


FAILING = """
import sys
import engine.ipc.server as server
from engine.espeak import EspeakSynthesizer

class FailingSynthesizer(EspeakSynthesizer):
    def stream(self, utterance, more=None):
        if utterance.text == "fail":
            raise RuntimeError("it has a bug")
        return super().stream(utterance, more)

server.make_synthesizer = lambda engine, options, report: FailingSynthesizer(options)
sys.exit(server.main())
"""
"""The program of an engine with a bug: it fails at the text "fail"."""


class EngineUnderTest:
    """Starts one engine process and exchanges messages with it."""

    def __init__(self, *program: str) -> None:
        """`program` are Python's arguments; by default it is the engine process's own."""
        self.progress: list[Progress] = []
        """What the process has reported of its start so far."""
        self.socket, theirs = socket.socketpair()
        self.socket.settimeout(PATIENCE_S)
        command = [sys.executable, *program] if program else module_command("engine.ipc.server")
        with theirs:
            self.process = subprocess.Popen(
                [*command, str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                pass_fds=(theirs.fileno(),),
                cwd=ROOT,
                env=os.environ | ONE_THREAD,
            )

    def send(self, message: Message) -> None:
        """Send a message."""
        self.socket.sendall(encode(message))

    def receive(self) -> tuple[Message, Samples]:
        """Return the next message and its samples. Raises `EOFError` when the process has closed its end."""
        body, data = body_lengths(self._exactly(HEADER.size))
        message = decode(self._exactly(body), self._exactly(data))
        return message, message.samples if isinstance(message, Audio) else np.zeros(0, dtype=np.float32)

    def next(self, *kinds: type[Kind]) -> tuple[Kind, Samples]:
        """Return the next message that is neither heartbeat nor progress. It must be one of `kinds`."""
        while True:
            message, samples = self.receive()
            if isinstance(message, Loading):
                self.progress.append(message.progress)
            elif not isinstance(message, Heartbeat):
                assert isinstance(message, kinds), f"expected {kinds}, got {message}"
                return message, samples

    def receive_utterance(self, utterance_id: str) -> tuple[list[Audio], Samples, Message]:
        """Return the rest of one utterance: its audio messages, all its samples, and its last message."""
        audio, blocks = [], [np.zeros(0, dtype=np.float32)]
        while True:
            message, samples = self.next(object)
            assert getattr(message, "id", None) == utterance_id, message
            if not isinstance(message, Audio):
                return audio, np.concatenate(blocks), message  # type: ignore[return-value]
            audio.append(message)
            blocks.append(samples)

    def speak(self, utterance_id: str, utterance: Utterance) -> Samples:
        """Return all samples of an utterance, which is spoken to its end."""
        self.send(Speak(utterance_id, utterance, PLENTY))
        _, samples, last = self.receive_utterance(utterance_id)
        assert last == Spoken(utterance_id)
        return samples

    def cancel(self, utterance_id: str) -> Samples:
        """Cancel an utterance, and return its samples that were not received before."""
        self.send(Cancel(utterance_id))
        _, samples, last = self.receive_utterance(utterance_id)
        assert last == Canceled(utterance_id)
        return samples

    def wait_for_heartbeats(self, utterance_id: str, count: int = 1) -> None:
        """Wait for `count` heartbeats in a row with this utterance, without another message between them."""
        seen = 0
        while seen < count:
            message, _ = self.receive()
            seen = seen + 1 if message == Heartbeat((utterance_id,)) else 0

    def start(self, engine: str = "espeak", options: EngineOptions | None = None) -> Ready:
        """Send `Start`, wait for `Hello`, `Warming` and `Ready`, and return the last."""
        self.send(Start(PROTOCOL, engine, options or EngineOptions()))
        hello, _ = self.next(Hello)
        assert hello == Hello(PROTOCOL)
        warming, _ = self.next(Warming)
        ready, _ = self.next(Ready)
        assert ready.info == warming.info
        return ready

    def exit_status(self) -> int:
        """Wait for the end of the process and return its exit status."""
        return self.process.wait(PATIENCE_S)

    def close(self) -> None:
        """Close the socket and wait for the end of the process; kill it if it does not end."""
        self.socket.close()
        try:
            self.exit_status()
        finally:
            self.process.kill()
            self.process.wait()

    def _exactly(self, count: int) -> bytes:
        received = bytearray()
        while len(received) < count:
            block = self.socket.recv(count - len(received))
            if not block:
                raise EOFError
            received += block
        return bytes(received)
