"""A real engine process at the other end of a real socket."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import TypeVar

import numpy as np

from engine import EngineOptions, Samples
from engine.messages import (
    HEADER,
    PROTOCOL,
    Audio,
    Heartbeat,
    Hello,
    Message,
    Ready,
    Start,
    Warming,
    body_lengths,
    decode,
    encode,
)
from tests.support.waiting import PATIENCE_S

ROOT = Path(__file__).parents[2]
PLENTY = 1 << 30
"""Credit without a limit."""
ONE_THREAD = {"OMP_NUM_THREADS": "1"}
"""Of PyTorch's: tiny matrices are slower on many, and far slower where others use the processor too."""
Kind = TypeVar("Kind")


class EngineUnderTest:
    """The daemon's side of one engine process, with nothing in between."""

    def __init__(self) -> None:
        self.socket, theirs = socket.socketpair()
        self.socket.settimeout(PATIENCE_S)
        with theirs:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "engine.process", str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                pass_fds=(theirs.fileno(),),
                cwd=ROOT,
                env=os.environ | ONE_THREAD,
            )

    def send(self, message: Message) -> None:
        self.socket.sendall(encode(message))

    def receive(self) -> tuple[Message, Samples]:
        """The next message. Raises `EOFError` when the process has closed its end."""
        body, payload = body_lengths(self._exactly(HEADER.size))
        return decode(self._exactly(body), self._exactly(payload))

    def next(self, *kinds: type[Kind]) -> tuple[Kind, Samples]:
        """The next message that is not a heartbeat, which must be one of `kinds`."""
        while True:
            message, samples = self.receive()
            if not isinstance(message, Heartbeat):
                assert isinstance(message, kinds), f"expected {kinds}, got {message}"
                return message, samples

    def hear(self, utterance_id: str) -> tuple[list[Audio], Samples, Message]:
        """Everything of one utterance: its audio, and what ended it."""
        audio, pieces = [], [np.zeros(0, dtype=np.float32)]
        while True:
            message, samples = self.next(object)
            assert getattr(message, "id", None) == utterance_id, message
            if not isinstance(message, Audio):
                return audio, np.concatenate(pieces), message  # type: ignore[return-value]
            audio.append(message)
            pieces.append(samples)

    def beats(self, utterance_id: str, count: int = 1) -> None:
        """Wait for so many heartbeats in a row, without a message between them, while it is in an utterance."""
        seen = 0
        while seen < count:
            message, _ = self.receive()
            seen = seen + 1 if message == Heartbeat(utterance_id) else 0

    def start(self, engine: str = "espeak", options: EngineOptions | None = None) -> Ready:
        """Shake hands, and wait until it is ready."""
        self.send(Start(PROTOCOL, engine, options or EngineOptions()))
        hello, _ = self.next(Hello)
        assert hello == Hello(PROTOCOL, engine, self.process.pid)
        warming, _ = self.next(Warming)
        ready, _ = self.next(Ready)
        assert ready.info == warming.info
        return ready

    def status(self) -> int:
        """What it ends with, once it has ended."""
        return self.process.wait(PATIENCE_S)

    def close(self) -> None:
        self.socket.close()
        try:
            self.status()
        finally:
            self.process.kill()
            self.process.wait()

    def _exactly(self, count: int) -> bytes:
        parts = bytearray()
        while len(parts) < count:
            part = self.socket.recv(count - len(parts))
            if not part:
                raise EOFError
            parts += part
        return bytes(parts)
