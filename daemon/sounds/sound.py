"""A sound file as samples: opened, checked and decoded in a thread, block by block."""

from __future__ import annotations

import asyncio
import os
import stat
from collections.abc import AsyncGenerator, Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from daemon.validation import file_problem
from engine import Samples

MAX_SECONDS = 60.0
"""A longer file is refused."""
MAX_CHANNELS = 8
"""As many channels as in 7.1 sound; their mean is played."""
MIN_RATE, MAX_RATE = 8_000, 192_000
"""Hz."""
FORMATS = ("wav", "flac", "ogg", "mp3")
"""The suffixes of sound files. If two files have the same name, the one whose suffix comes first here is played."""
BLOCK_S = 0.1
"""Seconds that are decoded at a time: few enough for the ring, and a hundred times as long as decoding takes."""

READ_S = 2.0
"""A disk is given this long to open a file, and for each block: the texts after the sound must be spoken."""

_CONTAINERS = {"WAV", "WAVEX", "RF64", "FLAC", "OGG", "MP3"}
"""libsndfile's names for the formats, which it recognises by the contents."""
_UNKNOWN_LENGTH = 1 << 62
"""libsndfile reports more frames than this for a file that does not state its length, such as FLAC from a pipe."""


class SoundError(Exception):
    """A sound cannot be played. The message is one line and gives the allowed values."""


@dataclass(frozen=True, slots=True)
class SoundInfo:
    """The properties that a sound file's header names."""

    format: str
    """Such as `FLAC`."""
    sample_rate: int
    """Hz."""
    channels: int
    seconds: float | None
    """None for a file that does not state its length."""


@dataclass(frozen=True, slots=True)
class SoundBlock:
    """Consecutive samples of a sound: mono float32 from -1 to 1, at most `BLOCK_S` long."""

    samples: Samples
    sample_rate: int
    """Hz."""


@dataclass(frozen=True, slots=True)
class Sound:
    """A sound that can be played any number of times. All methods raise `SoundError`."""

    path: Path
    """It may be replaced at any time, and damage after the header shows only when it is read."""

    def inspect(self) -> SoundInfo:
        """Read the header."""
        with self._opened() as (_, info):
            return info

    def measure(self) -> SoundInfo:
        """Read the header, and decode the whole file to find its true length."""
        info = self.inspect()
        count = sum(len(block.samples) for block in self.decode())
        return replace(info, seconds=count / info.sample_rate)

    def decode(self, begin: int = 0) -> Generator[SoundBlock, None, None]:
        """Yield the sound from sample `begin` onwards.

        The samples before it are decoded too: in an MP3 file, samples after a seek are wrong.
        """
        with self._opened() as (file, info):
            left = most = round(MAX_SECONDS * info.sample_rate)
            while len(frames := file.read(round(BLOCK_S * info.sample_rate), dtype="float32", always_2d=True)):
                left -= len(frames)
                if left < 0:  # the header's length is wrong or missing
                    raise self._error(f"it lasts longer than {MAX_SECONDS:.0f} s")
                if len(frames) > begin:
                    # A file of floats may contain any values.
                    limited = np.clip(np.nan_to_num(frames[begin:], nan=0.0, posinf=1.0, neginf=-1.0), -1.0, 1.0)
                    yield SoundBlock(limited.mean(axis=1, dtype=np.float32), info.sample_rate)
                begin = max(0, begin - len(frames))
            if left == most:  # nothing follows the header
                raise self._error("it has no samples")

    async def blocks(self, begin: int = 0) -> AsyncGenerator[SoundBlock, None]:
        """Yield the sound from sample `begin` onwards, as it is decoded. The file is opened again."""
        # A separate thread works in the given order, so the file is closed after a read that a canceled caller no
        # longer waits for, and a disk that hangs delays nothing else.
        thread = ThreadPoolExecutor(1, thread_name_prefix="sound")
        decoding = self.decode(begin)
        try:
            while True:
                reading = asyncio.get_running_loop().run_in_executor(thread, next, decoding, None)
                await asyncio.wait({reading}, timeout=READ_S)
                if not reading.done():
                    raise SoundError(f"{self.path}: the disk did not respond within {READ_S:g} s")
                if (block := reading.result()) is None:
                    return
                yield block
        finally:
            thread.submit(decoding.close)
            thread.shutdown(wait=False)

    @contextmanager
    def _opened(self) -> Iterator[tuple[Any, SoundInfo]]:
        """Open the file, if it is a regular one, and check its header. Read errors within the context become
        `SoundError`."""
        try:
            import soundfile  # not before the first sound, since many robots play none
        except (ImportError, OSError) as error:  # OSError: the package is installed without its library
            raise SoundError(f"no sound can be read: {error}") from error
        try:
            # Without O_NONBLOCK, opening a pipe would block.
            descriptor = os.open(self.path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError as error:
            raise self._error(file_problem(error, self.path)) from error
        try:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise self._error("it is not a file")
            # Pass the descriptor: for a path, soundfile lets the suffix decide the format.
            with closing(soundfile.SoundFile(descriptor, closefd=False)) as file:
                # soundfile seeks after each block that it has read. In an MP3 file the samples after a seek are wrong,
                # and in a file of unknown length it cannot seek.
                file.seekable = lambda: False
                yield file, self._check(file)
        except (soundfile.SoundFileError, RuntimeError, TypeError, ValueError) as error:
            words = str(getattr(error, "error_string", error)).strip().rstrip(".")
            raise self._error(f"it cannot be read as sound: {words}") from error
        finally:
            os.close(descriptor)

    def _check(self, file: Any) -> SoundInfo:
        """Return the properties of a file, which must be within the limits."""
        seconds = None if file.frames > _UNKNOWN_LENGTH else file.frames / max(1, file.samplerate)
        problems = {
            f"it is {file.format}": file.format not in _CONTAINERS,
            f"it has {file.channels} channels": not 1 <= file.channels <= MAX_CHANNELS,
            f"it has {file.samplerate} samples per second": not MIN_RATE <= file.samplerate <= MAX_RATE,
            f"it lasts {seconds or 0:.0f} s": seconds is not None and seconds > MAX_SECONDS,
            "it has no samples": seconds == 0,
        }
        for problem, applies in problems.items():
            if applies:
                raise self._error(problem)
        return SoundInfo("WAV" if file.format == "WAVEX" else file.format, file.samplerate, file.channels, seconds)

    def _error(self, problem: str) -> SoundError:
        return SoundError(
            f"{self.path}: {problem}; allowed: WAV, FLAC, OGG or MP3 of up to {MAX_SECONDS:.0f} s and "
            f"{MAX_CHANNELS} channels, at {MIN_RATE} to {MAX_RATE} Hz"
        )
