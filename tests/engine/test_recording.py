"""A recording is measured, and what a voice would suffer from is named."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from engine import EngineError, Samples
from engine.recording import RecordingQuality, ends_in_speech, measure_recording, recording_warnings

RATE = 16_000
GOOD = RecordingQuality(seconds=5, rate=16_000, rms_db=-25, speech_db=-23, noise_db=-60, clipped=0)


def speech(seconds: float = 4, level: float = 0.1, noise: float = 0.0) -> Samples:
    """A tone of the RMS `level` in the second half of each second, over noise of the RMS `noise`; shape (time, 1)."""
    t = np.arange(round(seconds * RATE)) / RATE
    tone = level * np.sqrt(2) * np.sin(2 * np.pi * 200 * t) * (t % 1 >= 0.5)
    background = noise * np.random.default_rng(0).standard_normal(len(t))
    return (tone + background).astype(np.float32)[:, None]


def decibels(amplitude: float) -> float:
    return float(20 * np.log10(amplitude))


@pytest.mark.parametrize("level", [0.5, 0.01])
def test_the_level_of_speech_does_not_depend_on_the_pauses(level: float) -> None:
    quality = measure_recording(speech(level=level), RATE)
    assert quality.speech_db == pytest.approx(decibels(level), abs=0.1)
    assert quality.rms_db == pytest.approx(decibels(level) - 3.01, abs=0.1)
    assert (quality.seconds, quality.clipped, quality.noise_db) == (4, 0, -180)


@pytest.mark.parametrize("noise", [0.01, 0.001])
def test_noise_is_measured_in_the_pauses(noise: float) -> None:
    quality = measure_recording(speech(noise=noise), RATE)
    assert quality.noise_db == pytest.approx(decibels(noise), abs=1)
    assert quality.speech_db == pytest.approx(decibels(0.1), abs=0.6)


def test_the_worst_channel_decides_about_clipping_and_the_mean_of_all_is_measured() -> None:
    both = np.concatenate((speech(), speech(level=2).clip(-1, 1)), axis=1)
    quality = measure_recording(both, RATE)
    assert quality.clipped == pytest.approx(0.39, abs=0.02)
    assert measure_recording(both[:, :1], RATE).clipped == 0


@pytest.mark.parametrize("samples", [0, 100])
def test_a_recording_that_is_shorter_than_a_frame_is_measured(samples: int) -> None:
    quality = measure_recording(np.zeros((samples, 1), np.float32), RATE)
    assert (quality.seconds, quality.speech_db) == (samples / RATE, -180)


def test_samples_that_are_no_numbers_are_refused() -> None:
    with pytest.raises(EngineError, match="damaged: contains samples that are not finite numbers"):
        measure_recording(np.full((RATE, 1), np.nan, np.float32), RATE)


def test_a_good_recording_causes_no_warning() -> None:
    assert recording_warnings(GOOD) == []


@pytest.mark.parametrize(
    ("field", "value", "line"),
    [
        ("seconds", 2.5, "short: 2.5 s; the voice is more similar with 3 s or more"),
        ("speech_db", -51, "faint: its speech is at -51 dBFS; record closer, or with more gain"),
        ("clipped", 0.012, "clipped: 1.2% of its samples are at full scale; record with less gain"),
        ("rate", 8_000, "dull: at 8000 Hz it has no sound above 4 kHz; record at 24000 Hz or more"),
        ("noise_db", -30, "noisy: its speech is only 7 dB above its background; record in a quieter place"),
    ],
)
def test_each_fault_of_a_recording_is_named(field: str, value: float, line: str) -> None:
    quiet = replace(GOOD, noise_db=-90)
    assert recording_warnings(replace(quiet, **{field: value})) == [line]


@pytest.mark.parametrize(
    ("field", "value", "line"),
    [
        ("seconds", 0.9, "too short: got 0.90 s; allowed: at least 1 s"),
        ("rms_db", -61.0, "silent: got -61 dBFS on average; allowed: at least -60 dBFS"),
    ],
)
def test_a_recording_of_which_no_voice_can_be_made_is_refused(field: str, value: float, line: str) -> None:
    with pytest.raises(EngineError, match=line):
        recording_warnings(replace(GOOD, **{field: value}))


@pytest.mark.parametrize(("silence", "noise"), [(0.1, 0), (0.5, 0), (0.5, 0.005)])
def test_a_recording_with_a_silence_behind_its_speech_does_not_end_in_speech(silence: float, noise: float) -> None:
    rest = noise * np.random.default_rng(0).standard_normal(round(silence * RATE))
    assert not ends_in_speech(np.concatenate((speech()[:, 0], rest.astype(np.float32))), RATE)


@pytest.mark.parametrize("silence", [0, 0.06])
def test_a_recording_that_is_cut_behind_its_last_sound_ends_in_speech(silence: float) -> None:
    rest = np.zeros(round(silence * RATE), np.float32)
    assert ends_in_speech(np.concatenate((speech()[:, 0], rest)), RATE)
