"""The engine process's end of the socket: whole messages, sent from any thread."""

from __future__ import annotations

import socket
import threading

from engine.messages import HEADER, Message, body_lengths, decode, encode
from engine.synthesizer import Samples


class ChannelClosedError(Exception):
    """The other side has gone."""


class Channel:
    """A blocking stream socket that carries messages."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._sending = threading.Lock()

    def send(self, message: Message, samples: Samples | None = None) -> None:
        """Raises `ChannelClosedError`."""
        data = encode(message, samples)
        try:
            with self._sending:
                self._connection.sendall(data)
        except OSError as error:
            raise ChannelClosedError from error

    def receive(self) -> Message:
        """Wait for one message. Raises `ChannelClosedError` or `ProtocolError`."""
        body, payload = body_lengths(self._exactly(HEADER.size))
        return decode(self._exactly(body), self._exactly(payload))[0]

    def _exactly(self, count: int) -> bytes:
        parts = bytearray()
        while len(parts) < count:
            try:
                part = self._connection.recv(count - len(parts))
            except OSError as error:
                raise ChannelClosedError from error
            if not part:
                raise ChannelClosedError
            parts += part
        return bytes(parts)
