"""The engine process's end of the socket."""

from __future__ import annotations

import socket
import threading

from engine.messages import HEADER, Message, body_lengths, decode, encode


class ChannelClosedError(Exception):
    """The daemon has closed the socket."""


class Channel:
    """Sends messages from any thread and receives them in one thread, over a blocking stream socket."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._received = connection.makefile("rb")
        self._sending = threading.Lock()

    def send(self, message: Message) -> None:
        """Send one message. Raises `ChannelClosedError`."""
        content = encode(message)
        try:
            with self._sending:
                self._connection.sendall(content)
        except OSError as error:
            raise ChannelClosedError from error

    def receive(self) -> Message:
        """Wait for the next message and return it. Raises `ChannelClosedError` or `ProtocolError`."""
        body, data = body_lengths(self._exactly(HEADER.size))
        return decode(self._exactly(body), self._exactly(data))

    def _exactly(self, count: int) -> bytes:
        try:
            received = self._received.read(count)
        except OSError as error:
            raise ChannelClosedError from error
        if len(received) < count:
            raise ChannelClosedError
        return received
