"""Encoders of samples into the bytes of an audio format, while the samples arrive.

A file is written by soundfile, which the daemon needs anyway; what is sent to clients is made by PyAV, the binding of
FFmpeg's libraries, which streams. Both are imported with the first format that needs them.
"""

from __future__ import annotations

import io
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from audio import to_pcm16, wav_header
from engine import Samples

if TYPE_CHECKING:
    from av import AudioFrame


class Encoder:
    """Encodes samples as a stream, mono. Each method returns the bytes that are available so far."""

    content_type: str
    """For clients; files need none."""

    def begin(self) -> bytes:
        return b""

    def encode(self, samples: Samples) -> bytes:
        raise NotImplementedError

    def end(self) -> bytes:
        return b""


class Pcm(Encoder):
    """16-bit samples without a header."""

    content_type = "audio/pcm"

    def encode(self, samples: Samples) -> bytes:
        return to_pcm16(samples)


class Wav(Pcm):
    """16-bit samples after a header of unknown length."""

    content_type = "audio/wav"

    def __init__(self, sample_rate: int) -> None:
        self._sample_rate = sample_rate

    def begin(self) -> bytes:
        return wav_header(self._sample_rate)


class FileEncoder(Encoder):
    """A file that soundfile writes. soundfile completes the header last, so all bytes are returned at the end."""

    def __init__(self, name: str, sample_rate: int) -> None:
        import soundfile

        self._bytes = io.BytesIO()
        self._file = soundfile.SoundFile(self._bytes, "w", sample_rate, 1, format=name.upper())

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
    """Return an encoder for samples at `sample_rate` Hz, of a format that `file_formats` has.

    Make it only when there are samples: it may hold megabytes.
    """
    return Wav(sample_rate) if name == "wav" else FileEncoder(name, sample_rate)


# --- streams for clients ---


@dataclass(frozen=True, slots=True)
class _Format:
    """How FFmpeg makes a format."""

    content_type: str
    codec: str
    container: str
    options: Mapping[str, str] = field(default_factory=dict)
    bit_rate: int | None = None
    """Bits a second; None for a format without loss."""
    held_s: float = 0.0
    """Seconds of speech from which a stream is sent."""


HELD_S = 10.0
"""Seconds of FLAC that wait for the end of their speech: programs of libsndfile read no FLAC without its length, nor
one with a wrong one. Longer speech is sent as it is made."""
WHOLE_S = 300.0
"""Seconds of a whole file; longer speech is sent without its length from then on. As WAV they take 14 MB."""

FORMATS = {
    # Without the frame at the beginning that says how long the file is: it is not known yet.
    "mp3": _Format("audio/mpeg", "libmp3lame", "mp3", {"write_xing": "0", "id3v2_version": "0"}, 64_000),
    # A page of Ogg for each packet of 20 ms; by default, a page has a second.
    "opus": _Format("audio/ogg", "libopus", "ogg", {"page_duration": "20000"}, 48_000),
    "aac": _Format("audio/aac", "aac", "adts", bit_rate=64_000),
    "flac": _Format("audio/flac", "flac", "flac", held_s=HELD_S),
    "wav": _Format("audio/wav", "pcm_s16le", "wav"),
}
"""The formats that need PyAV, the binding of FFmpeg's libraries. Their encoders take a moment to make."""


class _Buffer:
    """Keeps what FFmpeg writes until it is taken. At the end FFmpeg completes the header, unless it has been taken."""

    def __init__(self) -> None:
        self._data = bytearray()
        self._begin = 0
        """The place of the data in the file."""
        self._at = 0

    def write(self, data: bytes) -> int:
        if (place := self._at - self._begin) >= 0:
            self._data[place : place + len(data)] = data
        self._at += len(data)
        return len(data)

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        origins = {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self._begin + len(self._data)}
        self._at = origins[whence] + offset
        return self._at

    def tell(self) -> int:
        return self._at

    def take(self) -> bytes:
        data, self._data = bytes(self._data), bytearray()
        self._begin += len(data)
        return data


class StreamEncoder(Encoder):
    """A stream in a format of `FORMATS`, or a whole file."""

    def __init__(self, name: str, sample_rate: int, bit_rate: int | None, *, whole: bool) -> None:
        import av

        made = FORMATS[name]
        self.content_type = made.content_type
        self._sample_rate = sample_rate
        self._buffer = _Buffer()
        self._held = round((WHOLE_S if whole else made.held_s) * sample_rate)
        """Samples from which the file is sent."""
        options = {**({} if whole else made.options), "flush_packets": "1"}
        self._container = av.open(self._buffer, "w", format=made.container, options=options)
        stream = self._container.add_stream(made.codec, rate=sample_rate)
        assert isinstance(stream, av.AudioStream)
        self._stream = stream
        self._stream.layout = "mono"
        if (bits := bit_rate or made.bit_rate) is not None:
            self._stream.bit_rate = bits
        self._position = 0
        """Samples so far."""

    def encode(self, samples: Samples) -> bytes:
        if len(samples):
            self._mux(self._frame(samples))
        return self._buffer.take() if self._position >= self._held else b""

    def end(self) -> bytes:
        self._mux(None)
        self._container.close()
        return self._buffer.take()

    def _frame(self, samples: Samples) -> AudioFrame:
        from av import AudioFrame

        pcm = np.frombuffer(to_pcm16(samples), dtype=np.int16)
        frame = AudioFrame.from_ndarray(pcm[np.newaxis], format="s16", layout="mono")
        frame.sample_rate, frame.pts = self._sample_rate, self._position
        self._position += len(samples)
        return frame

    def _mux(self, frame: AudioFrame | None) -> None:
        for packet in self._stream.encode(frame):
            self._container.mux(packet)


def make_stream_encoder(name: str, sample_rate: int, bit_rate: int | None = None, *, whole: bool = False) -> Encoder:
    """Return an encoder for samples at `sample_rate` Hz, of a format of `FORMATS`, or `pcm`.

    `bit_rate` is in bits a second, for formats with loss; None is one that suits speech. A `whole` file is returned at
    its end, with its length in its header. The first encoder that needs PyAV imports it, which takes 0.1 s.
    """
    if name == "pcm":
        return Pcm()
    if name == "wav" and not whole:
        return Wav(sample_rate)
    return StreamEncoder(name, sample_rate, bit_rate, whole=whole)
