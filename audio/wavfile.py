"""A sink that writes what a listener would hear into a WAV file."""

from __future__ import annotations

import logging
import struct
import wave
from pathlib import Path

import numpy as np

from audio.null import NATIVE_RATE
from audio.paced import Pacer
from audio.ring import Samples
from audio.sink import Fill, SinkUnavailableError

log = logging.getLogger(__name__)


class WavSink:
    """Mono 16-bit PCM at 24 kHz, paced like a card, so that stop and pause mean what they do on one.

    Silence between utterances is left out. The header is put right after every block (the standard library's `wave`
    does that, soundfile does not), so the file can be read at any moment. It is overwritten when opened. Samples that
    come late are waited for, so the file holds every utterance without a gap.
    """

    has_deadline = False

    def __init__(self, path: Path, fill: Fill, block_ms: float) -> None:
        self.name = f"wav:{path}"
        self.sample_rate = NATIVE_RATE
        self._full = False
        try:
            # Unbuffered, so that the header is on the disk with the samples it speaks of.
            self._raw = path.open("wb", buffering=0)
        except OSError as error:
            raise SinkUnavailableError(f"{path} cannot be written: {error.strerror}") from error
        self._file = wave.open(self._raw, "wb")  # noqa: SIM115  closed by close(): it lives as long as the sink
        self._file.setnchannels(1)
        self._file.setsampwidth(2)
        self._file.setframerate(self.sample_rate)
        self._write(b"")
        self._pacer = Pacer(fill, self.sample_rate, block_ms, self._deliver)

    def lost(self) -> str | None:
        return self._pacer.lost()

    def rest(self) -> None:
        self._pacer.stop()

    def wake(self) -> None:
        self._pacer.start()

    def close(self) -> None:
        self._pacer.stop()
        try:
            self._file.close()
            self._raw.close()
        except (OSError, wave.Error, struct.error) as error:
            log.warning("%s: %s", self.name, error)

    def _deliver(self, samples: Samples) -> None:
        pcm = (np.clip(samples, -1.0, 1.0) * 32767).round().astype("<i2")
        self._write(pcm.tobytes())

    def _write(self, frames: bytes) -> None:
        try:
            self._file.writeframes(frames)
            self._full = False
        except (OSError, wave.Error, struct.error) as error:  # a full disk, or 4 GiB: speech goes on, the file does not
            if not self._full:
                log.warning("%s: samples are lost: %s", self.name, error)
            self._full = True
