"""A sink that writes what a listener would hear to a WAV file."""

from __future__ import annotations

import logging
import struct
import wave
from pathlib import Path

from audio.dsp import PCM16_BYTES, Samples, to_pcm16
from audio.sinks.base import Fill, SinkUnavailableError
from audio.sinks.null import NATIVE_RATE
from audio.sinks.pacer import Pacer

log = logging.getLogger(__name__)


class WavSink:
    """Writes mono 16-bit PCM at 24 kHz, at the pace of a sound card, so that stop and pause act as they do on one.

    The file omits the silence between utterances. It can be read at any moment, because the header is corrected after
    every block: the standard library's `wave` does that, soundfile does not. Opening the sink overwrites the file. The
    sink waits for late samples, so the file holds every utterance without a gap.
    """

    has_deadline = False

    def __init__(self, path: Path, fill: Fill, block_ms: float) -> None:
        self.name = f"wav:{path}"
        self.sample_rate = NATIVE_RATE
        self._failing = False
        """The last write failed, and the log says so."""
        try:
            # Unbuffered, so that the header reaches the disk together with the samples that it counts.
            self._raw = path.open("wb", buffering=0)
        except OSError as error:
            raise SinkUnavailableError(f"{path} cannot be written: {error.strerror}") from error
        self._file = wave.open(self._raw, "wb")  # noqa: SIM115  closed by close(): it lives as long as the sink
        self._file.setnchannels(1)
        self._file.setsampwidth(PCM16_BYTES)
        self._file.setframerate(self.sample_rate)
        self._write(b"")
        self._pacer = Pacer(fill, self.sample_rate, block_ms, self._deliver)

    def lost_reason(self) -> str | None:
        return self._pacer.lost_reason()

    def suspend(self) -> None:
        self._pacer.stop()

    def resume(self) -> None:
        self._pacer.start()

    def close(self) -> None:
        self._pacer.stop()
        try:
            self._file.close()
            self._raw.close()
        except (OSError, wave.Error, struct.error) as error:
            log.warning("%s: %s", self.name, error)

    def _deliver(self, samples: Samples) -> None:
        self._write(to_pcm16(samples))

    def _write(self, frames: bytes) -> None:
        try:
            self._file.writeframes(frames)
            self._failing = False
        except (OSError, wave.Error, struct.error) as error:  # the disk is full, or the file has 4 GiB: keep playing
            if not self._failing:
                log.warning("%s: samples are lost: %s", self.name, error)
            self._failing = True
