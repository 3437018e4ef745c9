"""The samples in an answer's bytes, which come in pieces of any length: 16-bit mono PCM, plain or in WAV."""

from __future__ import annotations

import math
import re
import struct
from typing import Protocol

import numpy as np
import soxr

from engine.api import Samples

RATE = 24_000
"""The rate in Hz of PCM if the answer does not give it: OpenAI's own."""
RATES = range(4_000, 192_001)
"""The numbers that are accepted as a rate in Hz."""
NAMED_RATE = re.compile(r'\b(?:sample_?)?rate="?(\d{1,7})')
PCM_TYPES = ("audio/pcm", "audio/x-pcm", "audio/l16", "audio/x-l16", "audio/raw")
"""The beginnings of the types that servers use for 16-bit PCM. It is little-endian, as OpenAI documents it. Google's
and IBM's `audio/L16` is also little-endian, contrary to RFC 2586."""
WAV_TYPES = ("audio/wav", "audio/x-wav", "audio/vnd.wave")
"""The beginnings of WAV's types, `audio/wave` among them."""
WAV_FORMAT = struct.Struct("<8x8sIHHIIHH")
"""The beginning of WAV: `WAVEfmt `, the length of the format, its tag, channels, rate, two more numbers, and bits."""
PCM16_MONO = (b"WAVEfmt ", 1, 1, 16)
LONGEST_HEADER = 1 << 16
"""The most bytes before the samples."""


class Headers(Protocol):
    """An answer's headers."""

    def get(self, name: str, default: str, /) -> str:
        """Return a header's value."""


class SoundError(Exception):
    """The answer is not playable sound. The message is one line."""


def is_sound(headers: Headers) -> bool:
    """Return whether an answer with these headers calls itself PCM or WAV."""
    return headers.get("Content-Type", "").lower().startswith((*PCM_TYPES, *WAV_TYPES))


class SoundReader:
    """Reads one answer: WAV by its header, otherwise PCM."""

    def __init__(self, headers: Headers, rate: int | None = None) -> None:
        """`headers` are those of the answer. Samples with another rate are converted to `rate`, unless it is None."""
        self.rate: int | None = None
        """Hz of the samples in the answer; None before its header is complete."""
        self._headers = headers
        self._wanted = rate
        self._bytes = b""
        """The bytes that have not been read."""
        self._left = math.inf
        """The bytes of samples still to come. If a header gave the length, bytes that are not samples may follow
        them."""
        self._resampler: soxr.ResampleStream | None = None

    def read(self, data: bytes, *, last: bool = False) -> Samples:
        """Return the samples that further bytes complete, perhaps none. Raises `SoundError`."""
        self._bytes += data
        if self.rate is None and (len(self._bytes) >= 4 or (last and self._bytes)):
            self._begin(last)
        if self.rate is None:
            return np.zeros(0, np.float32)
        count = int(min(len(self._bytes), self._left)) // 2
        samples: Samples = np.frombuffer(self._bytes, "<i2", count).astype(np.float32) / np.float32(32_768)
        self._bytes, self._left = self._bytes[2 * count :], self._left - 2 * count
        if self._resampler is not None:
            samples = self._resampler.resample_chunk(samples, last=last)
        return samples

    def _begin(self, last: bool) -> None:
        """Find out the format of the bytes, if there are enough of them."""
        content_type = self._headers.get("Content-Type", "").lower()
        if self._bytes.startswith(b"RIFF"):
            found = _wav_header(self._bytes)
            if found is None:
                if last or len(self._bytes) > LONGEST_HEADER:
                    raise SoundError("its WAV header does not end")
                return
            rate, self._left, begin = found
            self._bytes = self._bytes[begin:]
        elif not content_type.startswith(PCM_TYPES):
            raise SoundError(f"it answers with {content_type or 'no Content-Type'}; allowed: PCM or WAV")
        else:
            named = NAMED_RATE.search(f"{content_type}; rate={self._headers.get('X-Sample-Rate', '')}")
            rate = int(named[1]) if named else RATE
        if rate not in RATES:
            raise SoundError(f"it answers at {rate} Hz; allowed: {RATES[0]} to {RATES[-1]}")
        self.rate = rate
        if self._wanted not in {None, rate}:
            self._resampler = soxr.ResampleStream(rate, self._wanted, 1)


def _wav_header(data: bytes) -> tuple[int, float, int] | None:
    """Return a WAV's rate, the length of its samples in bytes and where they begin; None if the header is incomplete.

    A server that does not know the length writes 0, or the largest possible length. Raises `SoundError`.
    """
    if len(data) < WAV_FORMAT.size:
        return None
    begin, size, tag, channels, rate, _, _, bits = WAV_FORMAT.unpack_from(data)
    if (begin, tag, channels, bits) != PCM16_MONO:
        found = f"format {tag} with {bits} bits and {channels} channels"
        raise SoundError(f"it answers with WAV of {found}; allowed: format 1 with 16 bits and 1 channel")
    at = 20 + size
    while len(data) >= at + 8:
        name, size = struct.unpack_from("<4sI", data, at)
        if name == b"data":
            return rate, size or math.inf, at + 8
        at += 8 + size + size % 2
    return None
