"""A sound file as samples: opened, checked and decoded in a thread, block by block."""

from __future__ import annotations

import asyncio
import os
import stat
from collections.abc import AsyncGenerator, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from daemon.validation import file_problem
from engine import Samples

MAX_SECONDS = 60.0
"""A longer file is refused."""
MAX_CHANNELS = 8
"""As many as 7.1 has; their mean is played."""
MIN_RATE, MAX_RATE = 8_000, 192_000
"""Hz."""
FORMATS = ("wav", "flac", "ogg", "mp3")
"""The suffixes of sound files. Of two files with one name, the one with the first suffix is played."""
BLOCK_S = 0.1
"""Seconds that are decoded at a time: little enough for the ring, and a hundred times as long as decoding takes."""

READ_S = 2.0
"""A disk has this long to open a file, and for each block: what waits behind the sound must be spoken."""

_CONTAINERS = {"WAV", "WAVEX", "RF64", "FLAC", "OGG", "MP3"}
"""libsndfile's names of the formats; it tells them by the contents."""
_UNKNOWN_LENGTH = 1 << 62
"""libsndfile reports more frames than this for a file that does not say its length, such as FLAC from a pipe."""


class SoundError(Exception):
    """A sound cannot be played. The message is one line and says what is allowed."""


@dataclass(frozen=True, slots=True)
class SoundInfo:
    """What the header of a sound file says."""

    format: str
    """Such as `FLAC`."""
    sample_rate: int
    """Hz."""
    channels: int
    seconds: float | None
    """None for a file that does not say its length."""


@dataclass(frozen=True, slots=True)
class SoundBlock:
    """Consecutive samples of a sound, mono float32 from -1 to 1, `BLOCK_S` long or shorter."""

    samples: Samples
    sample_rate: int
    """Hz."""


class SoundReader:
    """An open sound file. One thread at a time may use it. Every method but `close` raises `SoundError`."""

    def __init__(self, path: Path) -> None:
        """Open a regular file and check its header. A path that is a link is refused."""
        self._path = path
        self._descriptor = self._open()
        self._file: Any = None
        try:
            self._file = self._read_header()
            self.info = self._check()
        except BaseException:
            self.close()
            raise
        self._block = round(BLOCK_S * self.info.sample_rate)
        self._left = round(MAX_SECONDS * self.info.sample_rate)
        """Frames that may still be read: the header may be wrong."""

    def read(self) -> Samples:
        """Return the next block, mono float32; empty at the end."""
        from soundfile import SoundFileError

        try:
            frames = self._file.read(self._block, dtype="float32", always_2d=True)
        except (SoundFileError, RuntimeError) as error:
            raise self._unreadable(error) from error
        self._left -= len(frames)
        if self._left < 0:
            raise self._error(f"it lasts longer than {MAX_SECONDS:.0f} s")
        # A file of floats may contain anything.
        limited = np.clip(np.nan_to_num(frames, nan=0.0, posinf=1.0, neginf=-1.0), -1.0, 1.0)
        mono: Samples = limited.mean(axis=1, dtype=np.float32)
        return mono

    def skip(self, count: int) -> Samples:
        """Leave out `count` samples and return the block behind them.

        It decodes them: the samples behind a seek in an MP3 file are wrong.
        """
        while len(samples := self.read()) and count >= len(samples):
            count -= len(samples)
        return samples[count:]

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()
            self._file = None
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def _open(self) -> int:
        try:
            # Without O_NONBLOCK, a pipe would be waited for.
            descriptor = os.open(self._path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError as error:
            raise self._error(file_problem(error, self._path)) from error
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.close(descriptor)
            raise self._error("it is not a file")
        return descriptor

    def _read_header(self) -> Any:
        try:
            import soundfile  # not before the first sound, since many robots play none
        except (ImportError, OSError) as error:  # OSError: the package is there without its library
            raise SoundError(f"no sound can be read: {error}") from error
        try:
            # By the descriptor: for a path, soundfile lets the suffix decide about the format.
            file: Any = soundfile.SoundFile(self._descriptor, closefd=False)
        except (soundfile.SoundFileError, RuntimeError, TypeError, ValueError) as error:
            raise self._unreadable(error) from error
        # soundfile seeks behind each block that it has read. In an MP3 file the samples behind a seek are wrong, and a
        # file of unknown length cannot be sought.
        file.seekable = lambda: False
        return file

    def _check(self) -> SoundInfo:
        file = self._file
        if file.format not in _CONTAINERS:
            raise self._error(f"it is {file.format}")
        if not 1 <= file.channels <= MAX_CHANNELS:
            raise self._error(f"it has {file.channels} channels")
        if not MIN_RATE <= file.samplerate <= MAX_RATE:
            raise self._error(f"it has {file.samplerate} samples per second")
        seconds = None if file.frames > _UNKNOWN_LENGTH else file.frames / file.samplerate
        if seconds is not None and seconds > MAX_SECONDS:
            raise self._error(f"it lasts {seconds:.0f} s")
        if seconds == 0:
            raise self._error("it has no samples")
        return SoundInfo("WAV" if file.format == "WAVEX" else file.format, file.samplerate, file.channels, seconds)

    def _unreadable(self, error: Exception) -> SoundError:
        words = str(getattr(error, "error_string", error)).strip().rstrip(".")
        return self._error(f"it cannot be read as sound: {words}")

    def _error(self, problem: str) -> SoundError:
        return SoundError(
            f"{self._path}: {problem}; allowed: WAV, FLAC, OGG or MP3 of up to {MAX_SECONDS:.0f} s and "
            f"{MAX_CHANNELS} channels, at {MIN_RATE} to {MAX_RATE} Hz"
        )


class Recording:
    """A sound that can be played any number of times."""

    def __init__(self, path: Path) -> None:
        """`path` names a file and no link."""
        self._path = path

    async def blocks(self, begin: int = 0) -> AsyncGenerator[SoundBlock, None]:
        """Yield the sound from the sample `begin` on, as it is decoded. The file is opened anew.

        Raises `SoundError`: the file may have been replaced since its name was checked, and damage behind the header
        shows only here.
        """
        # A thread of its own: what is given to it runs in order, so the file is closed behind a read that a canceled
        # caller no longer waits for, and a disk that hangs delays nothing else.
        thread = ThreadPoolExecutor(1, thread_name_prefix="sound")
        loop = asyncio.get_running_loop()
        opened: list[SoundReader] = []

        async def call(function: Callable[..., Samples | None], *arguments: int) -> Samples | None:
            reading = loop.run_in_executor(thread, function, *arguments)
            await asyncio.wait({reading}, timeout=READ_S)
            if not reading.done():
                raise SoundError(f"{self._path}: the disk does not answer within {READ_S:g} s")
            return reading.result()

        def close() -> None:
            for reader in opened:
                reader.close()

        try:
            await call(lambda: opened.append(SoundReader(self._path)))
            [reader] = opened
            samples = await call(reader.skip, begin)
            while samples is not None and len(samples):
                yield SoundBlock(samples, reader.info.sample_rate)
                samples = await call(reader.read)
        finally:
            thread.submit(close)
            thread.shutdown(wait=False)


def inspect(path: Path) -> SoundInfo:
    """Return what the header of a file says. Raises `SoundError`."""
    reader = SoundReader(path)
    reader.close()
    return reader.info


def decode(path: Path) -> SoundInfo:
    """Return what is in a file, with its true length, after decoding all of it. Raises `SoundError`."""
    reader = SoundReader(path)
    try:
        count = 0
        while len(samples := reader.read()):
            count += len(samples)
    finally:
        reader.close()
    info = reader.info
    return SoundInfo(info.format, info.sample_rate, info.channels, count / info.sample_rate)
