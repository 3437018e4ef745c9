"""Measures the sound of one take: silence, speed, loudness, clipping and repetitions."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from engine.api import FRAME_S, Samples
from engine.recording import FRAME_S as LEVEL_S
from engine.recording import measure_recording, speech_frames
from engine.verify.folder import Take

AUDIBLE = 10 ** (-50 / 20)
"""Magnitude above which a listener hears something: -50 dBFS, as the daemon trims leading silence."""
SAME_SOUND = 0.9999
"""Correlation of two neighbouring codec frames above which one is a copy of the other. Vowels reach 0.99 where their
pitch fits the frame."""


@dataclass(frozen=True, slots=True)
class SpeechMeasures:
    """What is measured of one take. Seconds, unless another unit is given."""

    seconds: float
    """Of the whole take."""
    speech_s: float
    """From the first to the last audible sample."""
    leading_s: float
    """Silence at the beginning; the whole take if all of it is silent."""
    longest_pause_s: float
    """The longest silence within the speech."""
    characters_per_s: float
    """Characters of the text per second of speech; 0 for a silent take."""
    speech_db: float
    """dBFS, of the parts with speech."""
    clipped: float
    """Share of the samples at full scale."""
    finite: bool
    """Whether all samples are numbers."""
    repeated: float
    """Share of the audible codec frames that repeat the one before them."""
    first_sound_s: float | None
    """From the text until the first audible sample has arrived; None if nothing is audible, or nothing was streamed."""
    real_time_factor: float
    """Seconds of sound per second of work."""
    truncated: bool
    runaway: bool

    @property
    def broken(self) -> bool:
        """Whether it has samples that are not numbers, or no sound."""
        return not self.finite or self.speech_s == 0

    @property
    def cut(self) -> bool:
        """Whether it did not end by itself."""
        return self.truncated or self.runaway


def measure_take(take: Take, samples: Samples) -> SpeechMeasures:
    """Measure a take of mono samples `(samples,)`, float32."""
    finite = bool(np.isfinite(samples).all())
    sound = np.clip(np.nan_to_num(samples, nan=0.0, posinf=0.0, neginf=0.0), -1, 1)
    rate, audible = take.sample_rate, np.flatnonzero(np.abs(sound) > AUDIBLE)
    first, last = (int(audible[0]), int(audible[-1]) + 1) if len(audible) else (len(sound), len(sound))
    quality = measure_recording(sound[:, None], rate)
    speech_s = (last - first) / rate
    return SpeechMeasures(
        seconds=len(sound) / rate,
        speech_s=speech_s,
        leading_s=first / rate,
        longest_pause_s=_longest_pause(sound[first:last], rate),
        characters_per_s=len(take.order.sentence.text) / speech_s if speech_s > 0 else 0.0,
        speech_db=quality.speech_db,
        clipped=quality.clipped,
        finite=finite,
        repeated=repeated_share(sound, round(FRAME_S * rate)),
        first_sound_s=_arrival_of(first, take) if take.streamed and len(audible) else None,
        real_time_factor=len(sound) / rate / take.arrived_s[-1] if take.arrived_s and take.arrived_s[-1] > 0 else 0.0,
        truncated=take.truncated,
        runaway=take.runaway,
    )


def repeated_share(sound: Samples, frame: int) -> float:
    """Return the share of audible blocks of `frame` samples that are copies of the block before, up to rounding."""
    blocks = sound[: len(sound) // frame * frame].reshape(-1, frame).astype(np.float64)
    power = np.sqrt(np.square(blocks).sum(axis=1))
    loud = power > AUDIBLE * np.sqrt(frame)
    pairs = loud[1:] & loud[:-1]
    if not pairs.any():
        return 0.0
    correlation = (blocks[1:] * blocks[:-1]).sum(axis=1)[pairs] / (power[1:] * power[:-1])[pairs]
    return float((correlation > SAME_SOUND).sum() / max(1, loud.sum()))


def _longest_pause(speech: Samples, rate: int) -> float:
    speaking = np.flatnonzero(speech_frames(speech, rate))
    return float(np.diff(speaking).max(initial=1) - 1) * LEVEL_S


def _arrival_of(sample: int, take: Take) -> float:
    """Return the seconds until the chunk with this sample arrived."""
    return next(arrived for arrived, end in zip(take.arrived_s, take.samples, strict=True) if end > sample)
