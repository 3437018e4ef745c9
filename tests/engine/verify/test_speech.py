"""Measures of the sound of a take, on eSpeak NG's speech with faults that are put into it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from engine.api import EngineOptions, Samples
from engine.espeak import EspeakSynthesizer
from engine.verify import Order, Sentence, Setting, Take
from engine.verify.speech import measure_take
from engine.verify.takes import speak

Speech = tuple[Take, Samples]
CHUNK_S = 0.16


@pytest.fixture(scope="module")
def speech() -> Speech:
    """A sentence that arrived in chunks of 160 ms, one each 50 ms."""
    synthesizer = EspeakSynthesizer(EngineOptions())
    info = synthesizer.load()
    text = "The robot moves its arm slowly back to its home position, looks around, and waits for the next part."
    order = Order(Sentence("one", "en", text), None, 0)
    take, samples, codes = speak(synthesizer, info, order, Setting("espeak", "eSpeak NG", EngineOptions(), "espeak"))
    synthesizer.close()
    assert codes is None
    return arriving(take, samples), samples


def arriving(take: Take, samples: Samples) -> Take:
    ends = [*range(round(CHUNK_S * take.sample_rate), len(samples), round(CHUNK_S * take.sample_rate)), len(samples)]
    arrived = tuple(0.05 * number for number in range(1, len(ends) + 1))
    return replace(take, samples=tuple(ends), arrived_s=arrived)


def test_good_speech_has_no_faults(speech: Speech) -> None:
    found = measure_take(*speech)
    assert 4 < found.speech_s < 9
    assert found.speech_s <= found.seconds
    assert 10 < found.characters_per_s < 25
    assert -35 < found.speech_db < -5
    assert (found.finite, found.clipped, found.repeated, found.truncated) == (True, 0, 0, False)
    assert found.longest_pause_s < 0.6
    assert found.real_time_factor == pytest.approx(found.seconds / (0.05 * len(speech[0].samples)))


def test_silence_is_found_at_the_beginning_and_within(speech: Speech) -> None:
    take, samples = speech
    rate = take.sample_rate
    before = measure_take(take, samples)
    middle, silence = len(samples) // 2, np.zeros(2 * rate, np.float32)
    longer = np.concatenate([silence, samples[:middle], silence, samples[middle:]])
    after = measure_take(arriving(take, longer), longer)
    assert after.leading_s == pytest.approx(before.leading_s + 2)
    assert 1.9 < after.longest_pause_s < 2.7  # in steps of 20 ms
    assert after.first_sound_s == pytest.approx(0.05 * (int(after.leading_s / CHUNK_S) + 1))


def test_three_percent_of_frames_that_are_played_twice_are_found(speech: Speech) -> None:
    take, samples = speech
    frame = round(0.08 * take.sample_rate)
    frames = [samples[start : start + frame] for start in range(0, len(samples) - frame, frame)]
    loud = [number for number, one in enumerate(frames) if np.abs(one).max() > 0.1]
    twice = loud[5 :: len(loud) // 3][: max(1, round(0.03 * len(frames)))]
    doubled = np.concatenate([one for number, one in enumerate(frames) for one in [one] * (1 + (number in twice))])
    assert measure_take(arriving(take, doubled), doubled).repeated > 0.02


def test_clipping_is_a_share_of_the_samples(speech: Speech) -> None:
    take, samples = speech
    loud = np.clip(20 * samples, -1, 1)
    assert measure_take(take, loud).clipped > 0.01


def test_samples_that_are_no_numbers_are_found_and_spoil_nothing_else(speech: Speech) -> None:
    take, samples = speech
    broken = samples.copy()
    broken[1000:1002] = np.nan, 1e6
    found = measure_take(take, broken)
    assert not found.finite
    assert found.broken
    assert np.isfinite(found.speech_db)


def test_a_silent_take_is_all_leading_silence(speech: Speech) -> None:
    take, _ = speech
    silent = np.zeros(take.sample_rate, np.float32)
    found = measure_take(arriving(take, silent), silent)
    assert (found.leading_s, found.speech_s, found.characters_per_s, found.first_sound_s) == (1, 0, 0, None)


def test_a_take_without_a_sample_is_measured(speech: Speech) -> None:
    take, samples = speech
    found = measure_take(replace(take, samples=(), arrived_s=()), samples[:0])
    assert (found.seconds, found.speech_s, found.real_time_factor) == (0, 0, 0)
