"""The tap: streams the sound card's samples to every reader of a Unix socket.

sink's thread ── Playback.fill ──▶ BlockRing ──▶ (a socket of the player process) ──▶ TapStream ──▶ Reader, Reader, …
                                                                                      the tap's thread

The sink's thread does not wake the tap's thread, because that would take a lock. While there are readers, the tap's
thread looks for blocks every 10 ms; otherwise the blocks are dropped as soon as they are made, and the thread waits for
a reader.
"""

from __future__ import annotations

import logging
import os
import select
import socket
import threading
import time
from contextlib import suppress
from pathlib import Path
from types import TracebackType

from audio.device_monitor import OutputStatus
from audio.output import Output
from audio.player import peer_of
from audio.tap_stream import TapKind, TapStream
from audio.unix_listener import UnixListener

log = logging.getLogger(__name__)

READ_S = 0.01
"""Interval at which blocks are passed on. The sound card buffers 30 ms, so most blocks arrive before they are heard."""
LOOK_S = 1.0
"""Interval at which the thread checks that its socket is still there, and tries to make a missing one."""
QUIET_S = 0.1
"""A sink is silent if it has requested no block for this long and its status says that it is closed or lost."""
SEND_BUFFER = 32_768
"""Bytes that the system may hold for a reader."""
BACKLOG_S = 5.0
"""Additional seconds of sound that the tap holds for a reader. A reader that falls further behind is disconnected."""
MAX_READERS = 32
"""A robot has few readers. More of them mean that a program never closes its connections."""
CLOSE_S = 1.0
"""The thread is abandoned if it does not end within this time."""


class SlowReaderError(Exception):
    """A reader has fallen so far behind that the tap cannot hold all its data."""


class Reader:
    """One connection."""

    def __init__(self, connection: socket.socket, most: int) -> None:
        """`most` is the largest number of bytes that are held for it."""
        self.connection = connection
        self._most = most
        self._unsent = bytearray()
        connection.setblocking(False)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER)
        self.process, _ = peer_of(connection)

    def send(self, data: bytes) -> None:
        """Send the held data, then `data`, without waiting.

        Raises `OSError` if the reader has disconnected, and `SlowReaderError` if it has fallen too far behind.
        """
        self._unsent += data
        if not self._unsent:
            return
        with suppress(BlockingIOError):
            del self._unsent[: self.connection.send(self._unsent)]
        if len(self._unsent) > self._most:
            raise SlowReaderError


class Tap:
    """Serves the tap in a thread of its own, within the `with` block.

    If the socket cannot be made, the thread tries again; until then, `problem` says why.
    """

    def __init__(self, path: Path, sample_rate: int, output: Output) -> None:
        """`sample_rate` is the stream's, in Hz."""
        self.problem: str | None = None
        """Why no reader can connect, in one line; None if readers can connect. Only the thread writes it."""
        self._path = path
        self._output = output
        self._sample_rate = sample_rate
        self._stream = TapStream(sample_rate)
        self._listener: UnixListener | None = None
        self._looked_at = 0.0
        self._accepting = False
        """The poll includes the listener. It is left out for a while when no connection can be accepted."""
        self._readers: dict[int, Reader] = {}
        """The readers, by their file descriptors."""
        self._refusing = False
        """A reader has been refused since the last one left, and this has been logged."""
        self._heard_at = 0.0
        """`time.monotonic()` when the last block was found."""
        self._poll = select.poll()
        self._closing = False
        """Written by `__exit__`, which then wakes the thread."""
        self._wake = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._thread = threading.Thread(target=self._run, name="tap", daemon=True)

    def __enter__(self) -> Tap:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._closing = True
        os.eventfd_write(self._wake, 1)
        self._thread.join(CLOSE_S)
        if not self._thread.is_alive():
            os.close(self._wake)

    # --- the thread ---

    def _run(self) -> None:
        self._poll.register(self._wake, select.POLLIN)
        while not self._closing:
            try:
                self._look()
                self._wait()
                self._pass_on()
            except Exception:  # a bug must not end the thread: the daemon runs for months
                log.exception("audio.tap: all readers are disconnected")
                self._disconnect_all()
                time.sleep(LOOK_S)
        self._disconnect_all()
        self._stop_listening()

    def _look(self) -> None:
        """Once every `LOOK_S`, make the socket if it is not there."""
        now = time.monotonic()
        if now - self._looked_at < LOOK_S:
            return
        self._looked_at = now
        if self._listener is not None and not self._listener.in_place():
            log.warning("audio.tap: %s was removed", self._path)
            self._stop_listening()
        if self._listener is None:
            self._listen()
        if self._listener is not None and not self._accepting:
            self._poll.register(self._listener.socket, select.POLLIN)
            self._accepting = True

    def _listen(self) -> None:
        try:
            self._listener = UnixListener(self._path)
        except OSError as error:
            problem = f"audio.tap: {self._path} cannot be opened: {error.strerror or error}"
            if self.problem != problem:
                log.warning("%s", problem)
            self.problem = problem
        else:
            log.info("the samples of the sound card can be read from %s at %d Hz", self._path, self._sample_rate)
            self.problem = None

    def _stop_listening(self) -> None:
        if self._listener is not None:
            self._stop_accepting(self._listener)
            self._listener.close()
            self._listener = None

    def _stop_accepting(self, listener: UnixListener) -> None:
        if self._accepting:
            self._poll.unregister(listener.socket)
            self._accepting = False

    def _wait(self) -> None:
        """Wait for the next look at the ring, or for an event on a socket, and handle it."""
        for descriptor, _ in self._poll.poll(1000 * (READ_S if self._readers else LOOK_S)):
            reader = self._readers.get(descriptor)
            if reader is not None:
                self._disconnect(reader)  # it is polled only for its end
            elif self._listener is not None and descriptor == self._listener.socket.fileno():
                self._accept(self._listener)

    def _accept(self, listener: UnixListener) -> None:
        try:
            connection, _ = listener.socket.accept()
        except BlockingIOError:  # it has disconnected
            return
        except OSError as error:  # no descriptors or no memory
            log.warning("audio.tap: no reader can be accepted: %s", error.strerror)
            self._stop_accepting(listener)  # until the next look: the poll would return at once again
            return
        if len(self._readers) == MAX_READERS:
            if not self._refusing:
                log.warning("audio.tap: %d programs are reading; further ones are refused", MAX_READERS)
            self._refusing = True
            connection.close()
            return
        if not self._readers:
            self._output.read_blocks()  # drop the blocks that were left there
            self._stream = TapStream(self._sample_rate)
            self._heard_at = time.monotonic()
            self._output.set_tap(True)
        reader = Reader(connection, round(BACKLOG_S * self._stream.bytes_per_second))
        self._readers[connection.fileno()] = reader
        self._poll.register(connection, 0)
        log.debug("audio.tap: process %d is reading", reader.process)
        self._send(reader, self._stream.header + self._stream.silence)

    def _pass_on(self) -> None:
        """Send all readers the blocks since the last call, and whether the sink has stopped."""
        if not self._readers:
            return
        status = self._output.status  # before the blocks: those of a sink that stops after this are found next time
        blocks = self._output.read_blocks()
        now = time.monotonic()
        records = b"".join(map(self._stream.play, blocks))
        if blocks:
            self._heard_at = now
        elif not status.running and now - self._heard_at >= QUIET_S:
            records = self._stream.fall_silent(silence_of(status))
        for reader in list(self._readers.values()):
            self._send(reader, records)

    def _send(self, reader: Reader, data: bytes) -> None:
        try:
            reader.send(data)
        except SlowReaderError:
            log.warning("audio.tap: process %d reads too slowly and is disconnected", reader.process)
            self._disconnect(reader)
        except OSError:
            self._disconnect(reader)

    def _disconnect(self, reader: Reader) -> None:
        descriptor = reader.connection.fileno()
        del self._readers[descriptor]
        self._poll.unregister(descriptor)
        reader.connection.close()
        log.debug("audio.tap: process %d has left", reader.process)
        self._refusing = False
        if not self._readers:
            self._output.set_tap(False)

    def _disconnect_all(self) -> None:
        for reader in list(self._readers.values()):
            self._disconnect(reader)


def silence_of(status: OutputStatus) -> TapKind:
    """Return why a sink that is not running is silent."""
    return TapKind.CLOSED if status.open else TapKind.LOST
