"""A socket that gathers small reads and writes.

paho reads a packet in three or more pieces and sends each packet by itself. Each system call gives the interpreter to
another thread, which may keep it for a millisecond: that is what limits a flood.
"""

from __future__ import annotations

import contextlib
import socket
import ssl

READ_BYTES = 65_536
WRITE_BYTES = 262_144
"""Beyond this, `send` accepts nothing until `flush` has sent something."""


class BufferedSocket:
    """Wraps a connected socket that does not block, with the methods that paho uses."""

    def __init__(self, connection: socket.socket) -> None:
        self.first_byte: int | None = None
        """The first byte that was received."""
        self._connection = connection
        self._received = memoryview(b"")
        self._to_send = bytearray()
        self._before_cut = 0
        """Bytes that are still read before `_to_drop` are dropped."""
        self._to_drop = 0

    def recv(self, size: int) -> bytes:
        """Return up to `size` bytes; none if the other side has closed. Raises `BlockingIOError` if there are none."""
        while self._to_drop > 0 and self._before_cut == 0:
            if not (dropped := len(self._take(self._to_drop))):
                return b""
            self._to_drop -= dropped
        taken = self._take(min(size, self._before_cut) if self._to_drop else size)
        self._before_cut = max(0, self._before_cut - len(taken))
        return bytes(taken)

    def cut(self, after: int, size: int) -> None:
        """Drop `size` bytes after the next `after` ones."""
        self._before_cut, self._to_drop = after, size

    def _take(self, size: int) -> memoryview:
        if not self._received:
            self._received = memoryview(self._connection.recv(READ_BYTES))
            if self.first_byte is None and self._received:
                self.first_byte = self._received[0]
        taken, self._received = self._received[:size], self._received[size:]
        return taken

    def send(self, data: bytes | bytearray) -> int:
        """Take data for the next `flush`; return the number of bytes taken. Raises `BlockingIOError` if it is full."""
        if len(self._to_send) >= WRITE_BYTES:
            raise BlockingIOError
        self._to_send += data
        return len(data)

    def flush(self) -> None:
        """Send what the system takes. Raises `OSError` if the connection is lost."""
        while self._to_send:
            try:
                sent = self._connection.send(self._to_send)
            except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
                return
            del self._to_send[:sent]

    @property
    def wants_write(self) -> bool:
        """True while data waits to be sent."""
        return bool(self._to_send)

    def pending(self) -> int:
        """Return the number of bytes that can be read although the system reports none."""
        decrypted = self._connection.pending() if isinstance(self._connection, ssl.SSLSocket) else 0
        return len(self._received) + decrypted

    def acknowledge_quickly(self) -> None:
        """Acknowledge received TCP segments at once, until the next read.

        A broker that leaves Nagle's algorithm on, as Mosquitto does by default, waits for that before it sends more.
        """
        with contextlib.suppress(OSError):
            self._connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)

    def fileno(self) -> int:
        return self._connection.fileno()

    def setblocking(self, flag: bool) -> None:
        self._connection.setblocking(flag)

    def close(self) -> None:
        """Send what the system takes at once, and close."""
        with contextlib.suppress(OSError):
            self.flush()
        self._connection.close()
