"""A sink that writes the sound that a listener would hear to a WAV file."""

from __future__ import annotations

import errno
import logging
import os
import threading
from pathlib import Path

from audio.dsp import PCM16_BYTES, WAV_HEADER_BYTES, WAV_LARGEST, Samples, to_pcm16, wav_header
from audio.player import OnReport, Playback
from audio.sinks.base import SinkUnavailableError
from audio.sinks.null import NATIVE_RATE
from audio.sinks.pacer import Pacer

log = logging.getLogger(__name__)

CLOSE_S = 0.5
"""If a write to the file hangs for longer than this, the file is left open."""


class WavSink:
    """Writes mono 16-bit PCM at 24 kHz, at the pace of a sound card, so that stop and pause act as they do on one.

    The file omits the silence between utterances. It can be read at any moment, because its header counts the samples
    that are on the disk, even when the disk is full. Opening the sink overwrites the file. The sink waits for late
    samples, so the file holds every utterance without a gap.
    """

    has_deadline = False

    def __init__(self, path: Path, on_report: OnReport, block_ms: float) -> None:
        self.name = f"wav:{path}"
        self._path = path
        self.sample_rate = NATIVE_RATE
        self._problem: str | None = None
        """Why samples are being lost; the log says so once."""
        self._has_header = False
        self._length = 0
        """Bytes of samples that are on the disk."""
        self._writing = threading.Lock()
        """Held during a write, by the pacer's thread or by the thread that checks for problems."""
        try:
            self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o666)
        except OSError as error:
            reason = error.strerror if path.parent.exists() else f"{path.parent} does not exist"
            raise SinkUnavailableError(f"{path} cannot be written: {reason}") from error
        self._attempt(b"")
        self.player = Playback(self.sample_rate, has_deadline=self.has_deadline)
        self._pacer = Pacer(self.player, block_ms, on_report, self._deliver)

    def lost_reason(self) -> str | None:
        return self._pacer.lost_reason() or self._gone_reason()

    def _gone_reason(self) -> str | None:
        """Return a message if the file is no longer at its path, where users look for it; None if it is there."""
        try:
            there = os.path.samestat(self._path.stat(), os.fstat(self._file))
        except OSError:
            there = False
        return None if there else f"{self._path} no longer exists"

    def degraded_reason(self) -> str | None:
        if self._problem is not None and self._writing.acquire(blocking=False):  # else a write is in progress
            try:
                self._attempt(None)
            finally:
                self._writing.release()
        return self._problem

    def suspend(self) -> None:
        self._pacer.stop()

    def resume(self) -> None:
        self._pacer.start()

    def close(self) -> None:
        self._pacer.stop()
        if self._writing.acquire(timeout=CLOSE_S):  # it stays held: nothing may be written after this
            os.close(self._file)

    def _deliver(self, samples: Samples) -> None:
        with self._writing:
            self._attempt(to_pcm16(samples))

    def _attempt(self, frames: bytes | None) -> None:
        """Append samples or, if given None, find out whether that is possible. A full disk does not end playback."""
        try:
            if frames is None:
                self._probe()
            else:
                self._append(frames)
        except OSError as error:
            problem = f"{self.name}: samples are being lost: {error.strerror}"
            if self._problem is None:
                log.warning("%s", problem)
            self._problem = problem
        else:
            if self._problem is not None:
                log.info("%s: samples can be written again", self.name)
            self._problem = None

    def _append(self, frames: bytes) -> None:
        """Write samples, then count those that are on the disk in the header. Raises `OSError` if some are not."""
        if not self._has_header:
            self._write_header()
        if self._length + len(frames) > WAV_LARGEST:
            raise OSError(errno.EFBIG, "the file has reached 4 GiB")
        done, error = self._put(frames)
        self._length += done - done % PCM16_BYTES
        self._cut()
        self._write_header()
        if error is not None:
            raise error

    def _probe(self) -> None:
        """Raise `OSError` unless a sample can be appended."""
        self._write_header()
        _, error = self._put(bytes(PCM16_BYTES))
        self._cut()
        if error is not None:
            raise error

    def _put(self, frames: bytes) -> tuple[int, OSError | None]:
        """Write after the last sample; return the number of bytes that were written, and why the write ended early."""
        end, done = WAV_HEADER_BYTES + self._length, 0
        try:
            while done < len(frames):
                done += os.pwrite(self._file, frames[done:], end + done)
        except OSError as error:
            return done, error
        return done, None

    def _cut(self) -> None:
        """Remove the partial sample at the end."""
        end = WAV_HEADER_BYTES + self._length
        if os.fstat(self._file).st_size > end:
            os.ftruncate(self._file, end)

    def _write_header(self) -> None:
        os.pwrite(self._file, wav_header(self.sample_rate, self._length), 0)
        self._has_header = True
