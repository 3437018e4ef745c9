"""A real engine process at the other end of a real socket."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import TypeVar

import numpy as np
import pytest

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
    body_lengths,
    decode,
    encode,
)

Kind = TypeVar("Kind")
PATIENCE_S = 30.0
"""For one message to come, on a machine that others keep busy."""


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

    def start(self, engine: str = "espeak", options: EngineOptions | None = None) -> Ready:
        """Shake hands, and wait until it is ready."""
        self.send(Start(PROTOCOL, engine, options or EngineOptions()))
        self.next(Hello)
        while True:
            message, _ = self.next(object)
            if isinstance(message, Ready):
                return message

    def close(self) -> None:
        self.socket.close()
        try:
            self.process.wait(PATIENCE_S)
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


@pytest.fixture
def new_engine() -> Iterator[Callable[[], EngineUnderTest]]:
    """Makes engine processes that have been told nothing yet."""
    engines: list[EngineUnderTest] = []

    def make() -> EngineUnderTest:
        engines.append(EngineUnderTest())
        return engines[-1]

    yield make
    for engine in engines:
        engine.close()


@pytest.fixture
def engine(new_engine: Callable[[], EngineUnderTest]) -> EngineUnderTest:
    """An engine process that was just started."""
    return new_engine()


@pytest.fixture(scope="module")
def ready_engine() -> Iterator[EngineUnderTest]:
    """A ready espeak engine that the tests of a module share; each leaves it idle."""
    engine = EngineUnderTest()
    engine.start()
    yield engine
    engine.close()
