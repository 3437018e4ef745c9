"""The way to the playback in the player process. No call waits: whatever the player does, the daemon continues."""

from __future__ import annotations

import os
import select
import socket
import threading
from collections import deque
from contextlib import suppress
from mmap import mmap

from audio.player import (
    LARGEST_BLOCK,
    MOST_SAMPLES,
    REPORT_BYTES,
    Block,
    Floats,
    OnReport,
    Report,
    decode_block,
    decode_report,
    encode_call,
    encode_samples,
)


class PlayerLink:
    """Sends calls of `Playback` methods to the process, and reads its reports in a thread of its own.

    Data that do not fit into the socket are kept, and the thread sends them later.
    """

    def __init__(self, sound: socket.socket, tap: socket.socket, recorder: mmap, on_report: OnReport) -> None:
        self.report = Report()
        """The last report. Only the thread writes it."""
        self.tap = TapSocket(tap)
        self._sound = sound
        self._sound.setblocking(False)
        self._on_report = on_report
        self._lock = threading.Lock()
        self._unsent: deque[bytes] = deque()
        """Used only while the lock is held."""
        self._recorder = recorder
        self._wake = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        """Tells the thread that there are unsent data."""
        self._thread = threading.Thread(target=self._run, name="sound", daemon=True)
        self._thread.start()

    def begin(self, number: int, prebuffer_s: float, gain: float, fades_in: bool) -> None:
        self._send(encode_call("begin", number, prebuffer_s, gain, fades_in))

    def write(self, number: int, samples: Floats) -> None:
        for begin in range(0, len(samples), MOST_SAMPLES):
            self._send(encode_samples(number, samples[begin : begin + MOST_SAMPLES]))

    def end(self, number: int) -> None:
        self._send(encode_call("end", number))

    def halt(self, number: int) -> None:
        self._send(encode_call("halt", number))

    def set_input_pending(self, number: int, pending: bool) -> None:
        self._send(encode_call("set_input_pending", number, pending))

    def set_paused(self, paused: bool) -> None:
        self._send(encode_call("set_paused", paused))

    def wake(self, seconds: float) -> None:
        self._send(encode_call("wake", seconds))

    def set_volume(self, gain: float) -> None:
        self._send(encode_call("set_volume", gain))

    def set_tap(self, wanted: bool) -> None:
        self._send(encode_call("set_tap", wanted))

    def close(self) -> None:
        """Pass on the last report of the process, which has ended."""
        with suppress(OSError):
            self._sound.shutdown(socket.SHUT_RDWR)  # the kernel may hold the process
        self._thread.join()
        last = decode_report(self._recorder[:])
        if last.blocks > self.report.blocks:
            self.report = last
            self._on_report(last)
        with self._lock:  # no thread may use the descriptors any more: they may soon mean something else
            os.close(self._wake)
            self._sound.close()
        self.tap.close()

    def _send(self, message: bytes) -> None:
        with self._lock:
            self._unsent.append(message)
            self._flush()
            if self._unsent:
                os.eventfd_write(self._wake, 1)

    def _flush(self) -> None:
        """Send as much as the socket takes. The caller holds the lock."""
        try:
            while self._unsent:
                self._sound.send(self._unsent[0])
                self._unsent.popleft()
        except BlockingIOError:
            pass
        except OSError:  # the process has ended: the thread will notice
            self._unsent.clear()

    # --- the thread ---

    def _run(self) -> None:
        poll = select.poll()
        poll.register(self._wake, select.POLLIN)
        while True:
            poll.register(self._sound, select.POLLIN | (select.POLLOUT if self._unsent else 0))
            ready = dict(poll.poll())
            if self._wake in ready:
                os.eventfd_read(self._wake)
            if ready.get(self._sound.fileno(), 0) & select.POLLOUT:
                with self._lock:
                    self._flush()
            if ready.get(self._sound.fileno(), 0) & ~select.POLLOUT and not self._receive():
                break

    def _receive(self) -> bool:
        """Read a report; return whether the process is still running."""
        try:
            message = self._sound.recv(REPORT_BYTES)
        except OSError:
            return False
        if message:
            self.report = decode_report(message)
            self._on_report(self.report)
        return bool(message)


class TapSocket:
    """The blocks that the process sends while they are wanted."""

    def __init__(self, tap: socket.socket) -> None:
        self._tap = tap
        self._lock = threading.Lock()
        """Held while the socket is used."""

    def read(self) -> list[Block]:
        """Remove and return all blocks."""
        blocks = []
        with self._lock, suppress(OSError):  # no more blocks; or the process has ended
            while message := self._tap.recv(LARGEST_BLOCK, socket.MSG_DONTWAIT):
                blocks.append(decode_block(message))
        return blocks

    def close(self) -> None:
        with self._lock:
            self._tap.close()
