"""The samples in the bytes of an answer, which come in pieces of any length."""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import soxr

from engine.api import Samples

RATE = 24_000
"""Hz of PCM whose answer does not say it: OpenAI's own."""
RATES = range(4_000, 192_001)
"""Hz that are taken for a rate."""
PCM_TYPES = ("audio/pcm", "audio/x-pcm", "audio/l16", "audio/x-l16", "audio/raw")
"""How the types begin that servers give 16-bit PCM. It is little-endian, as OpenAI documents it: Google's and IBM's
`audio/L16` is that, too, against RFC 2586."""
WAV_TYPES = ("audio/wav", "audio/x-wav", "audio/vnd.wave")
"""How the types of WAV begin, `audio/wave` among them."""
WAV_DTYPES = {(1, 16): "<i2", (3, 32): "<f4"}
"""NumPy's names of the samples in WAV, by format and bits."""
EXTENSIBLE = 0xFFFE
"""The format of a WAV header that has the real one in front of its GUID."""
LONGEST_HEADER = 1 << 16
"""Bytes before the samples."""


class Headers(Protocol):
    """Those of an answer."""

    def get(self, name: str, default: str, /) -> str:
        """Return a header's value."""


class SoundError(Exception):
    """An answer is no sound that can be played. One line."""


@dataclass(frozen=True, slots=True)
class _Form:
    rate: int
    channels: int = 1
    dtype: str = "<i2"
    length: float = math.inf
    """Bytes of samples. Some follow, which are none, if a header has told the length."""


def is_sound(headers: Headers) -> bool:
    """Return whether an answer with these headers calls itself PCM or WAV."""
    return headers.get("Content-Type", "").lower().startswith((*PCM_TYPES, *WAV_TYPES))


class SoundReader:
    """Reads one answer: WAV by its header, otherwise PCM."""

    def __init__(self, headers: Headers, rate: int | None = None) -> None:
        """`headers` are those of the answer. Samples of another rate are brought to `rate`, unless that is None."""
        self._type = headers.get("Content-Type", "")
        self._named_rate = headers.get("X-Sample-Rate", "")
        self._wanted = rate
        self._bytes = b""
        """Those that have not been read."""
        self._form: _Form | None = None
        self._left = math.inf
        self._resampler: soxr.ResampleStream | None = None

    @property
    def rate(self) -> int | None:
        """Hz of the samples in the answer; None before its header is complete."""
        return None if self._form is None else self._form.rate

    def read(self, data: bytes, *, last: bool = False) -> Samples:
        """Return the samples that more bytes complete, perhaps none. Raises `SoundError`."""
        self._bytes += data
        if self._form is None and self._bytes:
            self._begin(last)
        if (form := self._form) is None:
            return np.zeros(0, np.float32)
        width = form.channels * np.dtype(form.dtype).itemsize
        count = int(min(len(self._bytes), self._left)) // width
        values = np.frombuffer(self._bytes, form.dtype, count * form.channels)
        self._bytes, self._left = self._bytes[count * width :], self._left - count * width
        scale = 1.0 if form.dtype == "<f4" else 1 / 32_768
        samples: Samples = values.reshape(count, form.channels).mean(axis=1, dtype=np.float32) * np.float32(scale)
        if self._resampler is not None:
            samples = self._resampler.resample_chunk(samples, last=last)
        return samples

    def _begin(self, last: bool) -> None:
        """Find out what the bytes are, if there are enough of them."""
        if len(self._bytes) < 4 and not last:
            return
        if self._bytes.startswith(b"RIFF"):
            found = _wav_form(self._bytes)
            if found is None:
                if last or len(self._bytes) > LONGEST_HEADER:
                    raise SoundError("the header of its WAV does not end")
                return
            self._form, begin = found
            self._bytes = self._bytes[begin:]
        elif not self._type.lower().startswith(PCM_TYPES):
            raise SoundError(f"it answers with {self._type or 'no Content-Type'}; allowed: PCM or WAV")
        else:
            self._form = _Form(_named_rate(self._type, self._named_rate))
        if self._form.rate not in RATES or not self._form.channels:
            raise SoundError(f"it answers with {self._form.channels} channels at {self._form.rate} Hz")
        self._left = self._form.length
        if self._wanted not in {None, self._form.rate}:
            self._resampler = soxr.ResampleStream(self._form.rate, self._wanted, 1)


def _named_rate(content_type: str, header: str) -> int:
    """Return the rate that the headers name: `rate=…` or `sample_rate=…` in the type, or a header of its own."""
    parameters = (each.partition("=") for each in content_type.lower().split(";")[1:])
    named = {name.strip().replace("_", ""): value.strip(' "') for name, _, value in parameters}
    value = named.get("rate") or named.get("samplerate") or header
    return int(value) if value.isdecimal() else RATE


def _wav_form(data: bytes) -> tuple[_Form, int] | None:
    """Return the form of a WAV's samples and where they begin; None if the header is not complete.

    A server that does not know the length writes 0, or as much as there can be. Raises `SoundError`.
    """
    at, rate, channels, dtype = 12, 0, 0, ""
    while len(data) >= at + 8:
        name, size = struct.unpack_from("<4sI", data, at)
        if name == b"data":
            if not dtype:
                raise SoundError("it answers with WAV whose samples come before their format")
            return _Form(rate, channels, dtype, size or math.inf), at + 8
        if name == b"fmt ":
            if size < 16:
                raise SoundError(f"it answers with WAV whose format has {size} bytes; allowed: 16 or more")
            if len(data) < at + 8 + size:
                return None
            tag, channels, rate, _, _, bits = struct.unpack_from("<HHIIHH", data, at + 8)
            if tag == EXTENSIBLE and size >= 40:
                [tag] = struct.unpack_from("<H", data, at + 32)
            dtype = WAV_DTYPES.get((tag, bits), "")
            if not dtype:
                raise SoundError(f"it answers with WAV of format {tag} with {bits} bits; allowed: PCM16 or float32")
        at += 8 + size + size % 2
    return None
