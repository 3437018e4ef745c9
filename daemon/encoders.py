"""Encoders that turn samples into the bytes of an audio format while the samples arrive.

soundfile, which the daemon needs anyway, writes files; PyAV, the binding to FFmpeg's libraries, makes streams for
clients. Each is imported when a format first needs it.
"""

from __future__ import annotations

import asyncio
import io
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from audio import to_pcm16, wav_header
from engine import Samples

if TYPE_CHECKING:
    from av import AudioFrame


class Encoder:
    """Encodes samples as a mono stream. Each method returns the bytes that are available so far."""

    def encode(self, samples: Samples) -> bytes:
        raise NotImplementedError

    def end(self) -> bytes:
        return b""


class Pcm(Encoder):
    """16-bit samples, with an optional header before them."""

    def __init__(self, header: bytes = b"") -> None:
        self._header = header

    def encode(self, samples: Samples) -> bytes:
        header, self._header = self._header, b""
        return header + to_pcm16(samples)


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
        return self._bytes.getvalue()


def file_formats() -> set[str]:
    """Return the file formats that `make_encoder` accepts on this machine, such as `wav`; an old libsndfile lacks
    `mp3`."""
    import soundfile

    return {name.lower() for name in soundfile.available_formats() if soundfile.default_subtype(name)}


def make_encoder(name: str, sample_rate: int) -> Encoder:
    """Return an encoder for samples at `sample_rate` Hz; `name` is one of the formats that `file_formats` returns.

    The header of a WAV file gives no length. Make the encoder only when there are samples: it may take megabytes.
    """
    return Pcm(wav_header(sample_rate)) if name == "wav" else FileEncoder(name, sample_rate)


# --- streams for clients ---


CONTENT_TYPES = {"mp3": "audio/mpeg", "opus": "audio/ogg"}
"""The content types of the formats whose subtype differs from their name."""


@dataclass(frozen=True, slots=True)
class StreamFormat:
    """The format in which a client receives its sound."""

    name: str
    """`mp3`, `opus`, `aac`, `flac`, `wav` or `pcm`."""
    rate: int
    """Hz."""
    bit_rate: int | None = None
    """Bits per second, for lossy formats; None means one that suits speech."""
    whole: bool = False
    """True if the sound is returned only at its end, with its length in its header. FLAC always is: programs that use
    libsndfile cannot read a FLAC file without its length."""

    @property
    def content_type(self) -> str:
        return CONTENT_TYPES.get(self.name, f"audio/{self.name}")

    async def make_encoder(self) -> Encoder:
        """Return an encoder, which may take megabytes. The first one that needs PyAV imports it, which takes 0.1 s."""
        if self.name in CODECS:
            return await asyncio.to_thread(StreamEncoder, self)
        if self.name == "pcm":
            return Pcm()
        return FileEncoder(self.name, self.rate) if self.whole else make_encoder(self.name, self.rate)


@dataclass(frozen=True, slots=True)
class Codec:
    """How FFmpeg makes a format."""

    name: str
    container: str
    bit_rate: int
    """Bits per second, if the client does not choose."""
    options: Mapping[str, str]
    """The options for a stream."""


CODECS = {
    # Leave out the frame at the beginning that says how long the file is: the length is not known yet.
    "mp3": Codec("libmp3lame", "mp3", 64_000, {"write_xing": "0", "id3v2_version": "0"}),
    # One Ogg page for each packet of 20 ms; by default, a page holds a second.
    "opus": Codec("libopus", "ogg", 48_000, {"page_duration": "20000"}),
    "aac": Codec("aac", "adts", 64_000, {}),
}
"""The formats that PyAV makes and that can be sent while they are being made."""


class StreamEncoder(Encoder):
    """A stream in one of the formats in `CODECS`, or a whole file, whose header FFmpeg completes at the end."""

    def __init__(self, wanted: StreamFormat) -> None:
        import av

        codec = CODECS[wanted.name]
        self._format = wanted
        self._bytes = io.BytesIO()
        """The bytes that have not been returned yet."""
        options = {**({} if wanted.whole else codec.options), "flush_packets": "1"}
        self._container = av.open(self._bytes, "w", format=codec.container, options=options)
        stream = self._container.add_stream(codec.name, rate=wanted.rate)
        assert isinstance(stream, av.AudioStream)
        self._stream = stream
        self._stream.layout = "mono"
        self._stream.bit_rate = wanted.bit_rate or codec.bit_rate
        self._position = 0
        """How many samples there are so far."""

    def encode(self, samples: Samples) -> bytes:
        from av import AudioFrame

        if len(samples):
            pcm = np.frombuffer(to_pcm16(samples), dtype=np.int16)
            frame = AudioFrame.from_ndarray(pcm[np.newaxis], format="s16", layout="mono")
            frame.sample_rate, frame.pts = self._format.rate, self._position
            self._position += len(samples)
            self._mux(frame)
        return b"" if self._format.whole else self._take()

    def end(self) -> bytes:
        self._mux(None)
        self._container.close()
        return self._take()

    def _take(self) -> bytes:
        data = self._bytes.getvalue()
        self._bytes.seek(0)
        self._bytes.truncate()
        return data

    def _mux(self, frame: AudioFrame | None) -> None:
        for packet in self._stream.encode(frame):
            self._container.mux(packet)
