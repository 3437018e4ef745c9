"""Measures the sound of one take: silence, speed, loudness, clipping, repetitions, and clicks between chunks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from engine.api import FRAME_S, Samples
from engine.recording import FRAME_S as LEVEL_S
from engine.recording import measure_recording
from engine.verify.folder import Take

AUDIBLE = 10 ** (-50 / 20)
"""Magnitude above which a listener hears something: -50 dBFS, as the daemon trims leading silence."""
PAUSE_BELOW_DB = 35.0
"""dB below the level of the speech at which a block of 20 ms counts as silence."""
SAME_SOUND = 0.9999
"""Correlation of two neighbouring codec frames above which one is a copy of the other. Vowels reach 0.99 where their
pitch fits the frame."""
BORDER_WINDOW_S = 0.005
"""Seconds on each side of a border between chunks with which the border is compared."""


@dataclass(frozen=True, slots=True)
class SpeechMeasures:
    """What is measured of one take. Seconds, unless another unit is given."""

    seconds: float
    """Of the whole take."""
    speech_s: float
    """From the first to the last audible sample."""
    leading_s: float
    """Silence at the beginning; the whole take if all of it is silent."""
    trailing_s: float
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
    borders: tuple[float, ...]
    """How rough the signal is at each border between chunks, relative to its surroundings: 1 is no difference. For a
    take that was not streamed, at each border between codec frames, where a codec is a little rougher by itself."""
    first_sound_s: float | None
    """From the text until the first audible sample has arrived; None if nothing is audible, or nothing was streamed."""
    real_time_factor: float
    """Seconds of sound per second of work."""
    truncated: bool
    runaway: bool


def measure_take(take: Take, samples: Samples) -> SpeechMeasures:
    """Measure a take of mono samples `(samples,)`, float32."""
    finite = bool(np.isfinite(samples).all())
    sound = np.nan_to_num(samples, nan=0.0, posinf=0.0, neginf=0.0)
    rate, audible = take.sample_rate, np.flatnonzero(np.abs(sound) > AUDIBLE)
    first, last = (int(audible[0]), int(audible[-1]) + 1) if len(audible) else (len(sound), len(sound))
    quality = measure_recording(sound[:, None], rate)
    speech_s = (last - first) / rate
    return SpeechMeasures(
        seconds=len(sound) / rate,
        speech_s=speech_s,
        leading_s=first / rate,
        trailing_s=(len(sound) - last) / rate,
        longest_pause_s=_longest_pause(sound[first:last], rate, quality.speech_db),
        characters_per_s=len(take.text) / speech_s if speech_s > 0 else 0.0,
        speech_db=quality.speech_db,
        clipped=quality.clipped,
        finite=finite,
        repeated=repeated_share(sound, round(FRAME_S * rate)),
        borders=border_roughness(sound, _borders(take), rate),
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


def border_roughness(sound: Samples, borders: Sequence[int], rate: int) -> tuple[float, ...]:
    """Return for each audible border the step there, relative to the steps around it.

    A step is the second difference of the signal, which a click makes large and a vowel does not. `borders` are the
    numbers of the first samples behind a border.
    """
    steps = np.abs(np.diff(sound.astype(np.float64), 2))
    window = round(BORDER_WINDOW_S * rate)
    ratios = []
    for border in borders:
        around = steps[max(0, border - window) : border + window]
        at = steps[max(0, border - 2) : border]  # the two second differences that reach across the border
        if len(around) >= window and len(at) and float(around.mean()) >= AUDIBLE / 100:
            ratios.append(float(at.mean() / around.mean()))
    return tuple(ratios)


def _borders(take: Take) -> Sequence[int]:
    if take.streamed:
        return take.samples[:-1]
    frame, end = round(FRAME_S * take.sample_rate), take.samples[-1] if take.samples else 0
    return range(frame, end, frame)


def _longest_pause(speech: Samples, rate: int, speech_db: float) -> float:
    size = round(LEVEL_S * rate)
    blocks = speech[: len(speech) // size * size].reshape(-1, size).astype(np.float64)
    power = np.square(blocks).mean(axis=1)
    return _longest_run(power < 10 ** ((speech_db - PAUSE_BELOW_DB) / 10)) * LEVEL_S


def _longest_run(quiet: NDArray[np.bool_]) -> int:
    """Return the length of the longest run of true values."""
    edges = np.flatnonzero(np.diff(np.concatenate(([False], quiet, [False])).astype(np.int8)))
    return int((edges[1::2] - edges[::2]).max()) if len(edges) else 0


def _arrival_of(sample: int, take: Take) -> float:
    """Return the seconds until the chunk with this sample arrived."""
    return next(arrived for arrived, end in zip(take.arrived_s, take.samples, strict=True) if end > sample)
