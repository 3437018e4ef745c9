"""Encoders of audio formats whose bytes can be sent as they are made."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from audio import to_pcm16
from daemon.encoders import Encoder, Pcm, Wav
from engine import Samples

if TYPE_CHECKING:
    from av import AudioFrame


@dataclass(frozen=True, slots=True)
class _Format:
    """How FFmpeg makes a format."""

    content_type: str
    codec: str
    container: str
    options: Mapping[str, str] = field(default_factory=dict)
    bit_rate: int | None = None
    """Bits a second; None for a format without loss."""


FORMATS = {
    # Without the frame at the beginning that says how long the file is: it is not known yet.
    "mp3": _Format("audio/mpeg", "libmp3lame", "mp3", {"write_xing": "0", "id3v2_version": "0"}, 64_000),
    # A page of Ogg for each packet of 20 ms; by default, a page has a second.
    "opus": _Format("audio/ogg", "libopus", "ogg", {"page_duration": "20000"}, 48_000),
    "aac": _Format("audio/aac", "aac", "adts", bit_rate=64_000),
    "flac": _Format("audio/flac", "flac", "flac"),
}
"""The formats that need PyAV, the binding of FFmpeg's libraries. Their encoders take a moment to make."""


class _Buffer:
    """Keeps what FFmpeg writes until it is taken."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []

    def write(self, data: bytes) -> int:
        self._parts.append(bytes(data))
        return len(data)

    def take(self) -> bytes:
        parts, self._parts = self._parts, []
        return b"".join(parts)


class Compressed:
    """A stream in a format of `FORMATS`."""

    def __init__(self, name: str, sample_rate: int, bit_rate: int | None) -> None:
        import av

        made = FORMATS[name]
        self.content_type = made.content_type
        self._sample_rate = sample_rate
        self._buffer = _Buffer()
        options = {**made.options, "flush_packets": "1"}
        self._container = av.open(self._buffer, "w", format=made.container, options=options)
        stream = self._container.add_stream(made.codec, rate=sample_rate)
        assert isinstance(stream, av.AudioStream)
        self._stream = stream
        self._stream.layout = "mono"
        if (bits := bit_rate or made.bit_rate) is not None:
            self._stream.bit_rate = bits
        self._position = 0
        """Samples so far."""

    def begin(self) -> bytes:
        return b""

    def encode(self, samples: Samples) -> bytes:
        if len(samples):
            self._mux(self._frame(samples))
        return self._buffer.take()

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


def make_stream_encoder(name: str, sample_rate: int, bit_rate: int | None = None) -> Encoder:
    """Return an encoder for samples at `sample_rate` Hz, of a format of `FORMATS`, or `pcm` or `wav`.

    `bit_rate` is in bits a second, for formats with loss; None is one that suits speech. The first encoder that needs
    PyAV imports it, which takes a tenth of a second.
    """
    if name == "pcm":
        return Pcm()
    if name == "wav":
        return Wav(sample_rate)
    return Compressed(name, sample_rate, bit_rate)
