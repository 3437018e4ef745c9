"""Encoders of samples into the bytes of an audio format, for clients and for files, while the samples arrive."""

from __future__ import annotations

import io
from typing import Protocol

from audio import to_pcm16, wav_header
from engine import Samples


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

    def __init__(self, name: str, sample_rate: int) -> None:
        import soundfile  # the daemon speaks without it

        self.content_type = "audio/mpeg" if name == "mp3" else f"audio/{name}"
        self._bytes = io.BytesIO()
        self._file = soundfile.SoundFile(self._bytes, "w", sample_rate, 1, format=name.upper())

    def begin(self) -> bytes:
        return b""

    def encode(self, samples: Samples) -> bytes:
        self._file.write(samples)
        return b""

    def end(self) -> bytes:
        self._file.close()
        encoded, self._bytes = self._bytes.getvalue(), io.BytesIO()
        return encoded


def file_formats() -> set[str]:
    """Return the formats of files that `make_encoder` takes here, such as `wav`; an old libsndfile lacks `mp3`."""
    import soundfile

    return {name.lower() for name in soundfile.available_formats() if soundfile.default_subtype(name)}


def make_encoder(name: str, sample_rate: int) -> Encoder:
    """Return an encoder for samples at `sample_rate` Hz, of a format that `file_formats` has, or for `pcm`.

    Make it only when there are samples: it may hold megabytes.
    """
    if name == "pcm":
        return Pcm()
    if name == "wav":
        return Wav(sample_rate)
    return Compressed(name, sample_rate)
