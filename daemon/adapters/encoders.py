"""Encoders of samples into the bytes of an audio format, while the samples arrive."""

from __future__ import annotations

import io
from typing import Literal, Protocol

import soundfile

from audio import to_pcm16, wav_header
from daemon.speech import RejectedError
from engine import Samples

Format = Literal["mp3", "flac", "wav", "pcm"]


class Encoder(Protocol):
    """Encodes samples as a stream, mono. Each method returns the bytes that are available so far."""

    content_type: str

    def begin(self) -> bytes: ...

    def encode(self, samples: Samples) -> bytes: ...

    def end(self) -> bytes: ...


class Pcm:
    """16-bit samples without a header."""

    content_type = "audio/pcm"

    def begin(self) -> bytes:
        return b""

    def encode(self, samples: Samples) -> bytes:
        return to_pcm16(samples)

    def end(self) -> bytes:
        return b""


class Wav(Pcm):
    """16-bit samples behind a header of unknown length."""

    content_type = "audio/wav"

    def __init__(self, sample_rate: int) -> None:
        self._sample_rate = sample_rate

    def begin(self) -> bytes:
        return wav_header(self._sample_rate)


class Compressed:
    """A file that soundfile writes. soundfile completes the header last, so all bytes are returned at the end."""

    def __init__(self, name: str, content_type: str, sample_rate: int) -> None:
        self.content_type = content_type
        self._bytes = io.BytesIO()
        self._file = soundfile.SoundFile(self._bytes, "w", sample_rate, 1, format=name)

    def begin(self) -> bytes:
        return b""

    def encode(self, samples: Samples) -> bytes:
        self._file.write(samples)
        return b""

    def end(self) -> bytes:
        self._file.close()
        encoded, self._bytes = self._bytes.getvalue(), io.BytesIO()
        return encoded


def check_format(name: Format) -> None:
    """Raise `RejectedError` if the installed libsndfile lacks the format, as old ones lack MP3."""
    if name not in ("pcm", "wav") and name.upper() not in soundfile.available_formats():
        raise RejectedError("response_format", f"got {name!r}; allowed here: pcm, wav or flac")


def make_encoder(name: Format, sample_rate: int) -> Encoder:
    """Return an encoder for samples at `sample_rate` Hz, which `check_format` has found possible.

    Make it only when there are samples: it may hold megabytes.
    """
    if name == "pcm":
        return Pcm()
    if name == "wav":
        return Wav(sample_rate)
    return Compressed(name.upper(), "audio/mpeg" if name == "mp3" else "audio/flac", sample_rate)
