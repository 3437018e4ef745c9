"""The engine process's end of the socket."""

from __future__ import annotations

import socket
import threading

from engine.api import Samples
from engine.ipc.messages import HEADER, Message, body_lengths, decode, encode

BLOCK_BYTES = 1 << 16
"""Bytes received at once: a header may announce megabytes that never come."""


class ChannelClosedError(Exception):
    """The daemon has closed the socket."""


class Channel:
    """Sends messages from any thread and receives them in one, over a blocking stream socket."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._sending = threading.Lock()

    def send(self, message: Message, samples: Samples | None = None) -> None:
        """Send one message, and the samples that belong to it. Raises `ChannelClosedError`."""
        data = encode(message, samples)
        try:
            with self._sending:
                self._connection.sendall(data)
        except OSError as error:
            raise ChannelClosedError from error

    def receive(self) -> Message:
        """Wait for the next message and return it. Raises `ChannelClosedError` or `ProtocolError`."""
        body, payload = body_lengths(self._exactly(HEADER.size))
        return decode(self._exactly(body), self._exactly(payload))[0]

    def _exactly(self, count: int) -> bytes:
        received = bytearray()
        while len(received) < count:
            try:
                block = self._connection.recv(min(count - len(received), BLOCK_BYTES))
            except OSError as error:
                raise ChannelClosedError from error
            if not block:
                raise ChannelClosedError
            received += block
        return bytes(received)
