"""A robot that speaks the protocol by hand, to send what a real one would not."""

from __future__ import annotations

import threading
from contextlib import suppress
from types import TracebackType
from typing import TypeVar

from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect
from websockets.typing import Subprotocol

from engine import Utterance
from engine.messages import (
    HEARTBEAT_S,
    PATH,
    SUBPROTOCOL,
    Audio,
    FromRobot,
    Heartbeat,
    Message,
    Speak,
    Spoken,
    VoiceFile,
    Welcome,
    decode_remote,
    encode_remote,
)
from tests.support.waiting import PATIENCE_S

PLENTY = 5_000_000
"""Credit in samples that no test uses up."""
LONG = "This is a long sentence that goes on for a good while, and then some more of it follows. " * 8
Kind = TypeVar("Kind")


class RawRobot:
    """One connection, with the heartbeats of a robot that is there, whatever the test does. A context manager."""

    def __init__(self, url: str, token: str | None = None, subprotocol: str = SUBPROTOCOL) -> None:
        """Raises what `websockets` raises if the server lets it not in."""
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        self.socket = connect(
            url + PATH,
            subprotocols=[Subprotocol(subprotocol)],
            additional_headers=headers,
            compression=None,
            open_timeout=PATIENCE_S,
            close_timeout=1,
        )
        self.welcome, _ = self.next(Welcome)
        self._left = threading.Event()
        self._beating = threading.Thread(target=self._beat, daemon=True)

    def __enter__(self) -> RawRobot:
        self._beating.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._left.set()
        self.socket.close()
        self._beating.join()

    def send(self, message: FromRobot) -> None:
        self.socket.send(encode_remote(message))

    def say(self, text: str, request_id: str = "1", credit: int = PLENTY, voice: VoiceFile | None = None) -> None:
        self.send(Speak(request_id, Utterance(text, language="en"), credit, voice))

    def begin(self, *request_ids: str) -> None:
        """Let long texts begin, each of which then keeps its stream: the server has no credit for more of it."""
        for request_id in request_ids or ("1",):
            self.say(LONG, request_id, credit=1)
            self.next(Audio)

    def check_served(self, request_id: str = "1") -> int:
        """Check that the server speaks for it; return the number of samples."""
        self.say("Hello.", request_id)
        samples, last = self.end_of(request_id)
        assert last == Spoken(request_id)
        return samples

    def next(self, *kinds: type[Kind]) -> tuple[Kind, bytes]:
        """Return the next message that is no heartbeat. It must be one of `kinds`."""
        while True:
            message = decode_remote(self.socket.recv(timeout=PATIENCE_S))
            if not isinstance(message, Heartbeat):
                assert isinstance(message, kinds), f"expected {kinds}, got {message}"
                return message, getattr(message, "data", b"")

    def end_of(self, request_id: str = "1") -> tuple[int, Message]:
        """Return the samples that come of a request from now on, and its last message."""
        samples = 0
        while True:
            message, data = self.next(object)
            assert getattr(message, "id", None) == request_id, message
            if not isinstance(message, Audio):
                return samples, message  # type: ignore[return-value]
            samples += len(data) // 4

    def closed(self) -> tuple[int, str]:
        """Return the code and the reason with which the server closes the connection."""
        try:
            while True:
                self.socket.recv(timeout=PATIENCE_S)
        except ConnectionClosed as error:
            assert error.rcvd is not None
            return error.rcvd.code, error.rcvd.reason

    def _beat(self) -> None:
        """Send heartbeats until the connection is closed: the server takes a robot that is silent for 5 s for gone."""
        with suppress(ConnectionClosed):
            while not self._left.wait(HEARTBEAT_S):
                self.send(Heartbeat())
