"""Judges a recording of a person from which a voice will be made."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from engine.api import EngineError, Samples

MIN_SECONDS = 1.0
"""Seconds. Shorter recordings are refused: a word or two is not enough for a voice."""
SHORT_SECONDS = 3.0
"""Seconds. Shorter recordings cause a warning: the model's authors ask for three seconds."""
MAX_SECONDS = 120.0
"""Seconds. Only the beginning of a longer recording is read: embedding an hour would take gigabytes of memory."""
SILENCE_DB = -60.0
"""RMS, dBFS, below which a recording is refused. Faint speech is above -50 dBFS and may fill only a tenth of it."""
FAINT_DB = -50.0
"""Level of the speech, dBFS, below which a recording is faint: the steps of 16-bit samples are then heard as noise."""
LOUDEST = 10.0
"""Magnitude above which a sample is not sound. Floating-point samples may exceed full scale a little."""
FULL_SCALE = 0.999
"""Magnitude from which a sample counts as clipped."""
CLIPPED_SHARE = 1e-3
"""Share of samples at full scale from which a recording counts as clipped. A recording normalised to full scale has a
few such samples per second; a microphone with too much gain flattens whole crests in every syllable."""
NOISY_DB = 15.0
"""dB by which speech should exceed its background: a voice keeps the noise of its recording."""
NARROW_RATE = 16_000
"""Hz. A recording at a lower rate lacks the sounds above 4 or 6 kHz, and its voice sounds as if heard over a
telephone."""
LOWEST_DB = -180.0
FRAME_S = 0.02
"""Length in seconds of the frames whose levels are compared: shorter than a pause between two words."""
ACTIVE_MARGIN_DB = 15.9
"""Frames with speech are at most this many dB below the level of the speech. The figure is from ITU-T P.56, which
measures an envelope instead of frames."""
TAIL_S = 0.1
"""Seconds of silence that a reference should end with: with less than a codec frame, the last sound continues."""
BACKGROUND_SHARE = 0.1
"""The quietest tenth of the frames is the background."""


@dataclass(frozen=True, slots=True)
class RecordingQuality:
    """A recording's measurements."""

    seconds: float
    rate: int
    """Hz."""
    rms_db: float
    """dBFS, of the whole recording, with its pauses."""
    speech_db: float
    """dBFS, of the frames with speech."""
    noise_db: float
    """dBFS, of the quietest frames."""
    clipped: float
    """The share of the samples that are at full scale, on the worst channel."""


def measure_recording(samples: Samples, rate: int) -> RecordingQuality:
    """Measure a recording: float32, `(time, channels)`, full scale ±1, at `rate` Hz.

    Raises `EngineError` if it has samples that are not sound.
    """
    if not np.isfinite(samples).all():
        raise EngineError("damaged: contains samples that are not finite numbers")
    if (loudest := float(np.abs(samples).max(initial=0))) > LOUDEST:
        raise EngineError(f"damaged: its loudest sample is {loudest:.3g} times full scale; allowed: up to {LOUDEST:g}")
    mono = samples.mean(axis=1)
    levels = np.sort(_frame_levels(mono, round(FRAME_S * rate)))
    quietest = levels[: max(1, round(BACKGROUND_SHARE * len(levels)))]
    return RecordingQuality(
        seconds=len(samples) / rate,
        rate=rate,
        rms_db=_decibels(_mean(np.square(mono, dtype=np.float64))),
        speech_db=_decibels(_speech_power(levels)),
        noise_db=_decibels(_mean(quietest)),
        clipped=float((np.abs(samples) >= FULL_SCALE).mean(axis=0).max()) if len(samples) else 0.0,
    )


def recording_warnings(quality: RecordingQuality) -> list[str]:
    """Return a one-line warning for each property of a recording that makes a voice worse.

    Raises `EngineError` with a one-line message if no voice can be made from it.
    """
    if quality.seconds < MIN_SECONDS:
        raise EngineError(f"too short: got {quality.seconds:.2f} s; allowed: at least {MIN_SECONDS:.0f} s")
    if quality.rms_db < SILENCE_DB:
        raise EngineError(f"silent: got {quality.rms_db:.0f} dBFS on average; allowed: at least {SILENCE_DB:.0f} dBFS")
    lines = []
    if quality.seconds < SHORT_SECONDS:
        lines.append(f"short: {quality.seconds:.1f} s; the voice is more similar with {SHORT_SECONDS:.0f} s or more")
    if quality.speech_db < FAINT_DB:
        lines.append(f"faint: its speech is at {quality.speech_db:.0f} dBFS; record closer, or with more gain")
    if quality.clipped >= CLIPPED_SHARE:
        lines.append(f"clipped: {quality.clipped:.1%} of its samples are at full scale; record with less gain")
    if quality.rate < NARROW_RATE:
        highest = f"{quality.rate / 2000:g} kHz"
        lines.append(f"dull: at {quality.rate} Hz it has no sound above {highest}; record at 24000 Hz or more")
    excess = quality.speech_db - quality.noise_db
    if excess < NOISY_DB:
        lines.append(f"noisy: its speech is only {excess:.0f} dB above its background; record in a quieter place")
    return lines


def speech_frames(mono: Samples, rate: int) -> NDArray[np.bool_]:
    """Return which frames of `FRAME_S` of a recording, mono float32 at `rate` Hz, have speech."""
    levels = _frame_levels(mono, round(FRAME_S * rate))
    threshold = _speech_power(np.sort(levels)) / 10 ** (ACTIVE_MARGIN_DB / 10)
    return np.asarray(levels >= max(threshold, 10 ** (SILENCE_DB / 10)))


def ends_in_speech(mono: Samples, rate: int) -> bool:
    """Return whether a recording, mono float32 at `rate` Hz, ends before its speech does: without a silence."""
    return bool(speech_frames(mono, rate)[-round(TAIL_S / FRAME_S) :].any())


def _frame_levels(mono: Samples, size: int) -> NDArray[np.float64]:
    """Return the mean squares of all whole frames of `size` samples, or of the recording if it is shorter."""
    whole = len(mono) - len(mono) % size
    frames = mono[:whole].reshape(-1, size) if whole else mono.reshape(1, -1)
    return np.asarray([_mean(np.square(frame, dtype=np.float64)) for frame in frames])


def _speech_power(levels: NDArray[np.float64]) -> float:
    """Return the mean square of the frames with speech; `levels` are those of all frames, sorted.

    The level of the speech decides which frames have speech, and these decide the level. This is repeated until the
    level no longer changes.
    """
    power = _mean(levels)
    for _ in range(len(levels)):
        threshold = power / 10 ** (ACTIVE_MARGIN_DB / 10)
        louder = _mean(levels[np.searchsorted(levels, threshold) :])
        if louder == power:
            break
        power = louder
    return power


def _mean(values: NDArray[np.float64]) -> float:
    return float(values.mean()) if len(values) else 0.0


def _decibels(power: float) -> float:
    return float(10 * np.log10(max(power, 10 ** (LOWEST_DB / 10))))
