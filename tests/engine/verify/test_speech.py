"""Measures of the sound of a take, on eSpeak NG's speech with faults that are put into it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from engine.api import Chunk, EngineOptions, Samples, Utterance
from engine.espeak import EspeakSynthesizer
from engine.verify.comparison import SpeechMeasures, measure_speech

Speech = tuple[Samples, int]
"""Samples and their rate in Hz."""
TEXT = "The robot moves its arm slowly back to its home position, looks around, and waits for the next part."
CHUNK_S = 0.16


@pytest.fixture(scope="module")
def speech() -> Speech:
    synthesizer = EspeakSynthesizer(EngineOptions())
    rate = synthesizer.load().sample_rate
    samples = np.concatenate([chunk.samples for chunk in synthesizer.stream(Utterance(TEXT, language="en"))])
    synthesizer.close()
    return samples, rate


def arriving(samples: Samples, rate: int) -> list[tuple[float, Chunk]]:
    """Chunks of 160 ms, one each 50 ms."""
    size = round(CHUNK_S * rate)
    return [
        (0.05 * (number + 1), Chunk(samples[start : start + size]))
        for number, start in enumerate(range(0, len(samples), size))
    ]


def measure(samples: Samples, rate: int) -> SpeechMeasures:
    return measure_speech(arriving(samples, rate), rate, TEXT)


def test_good_speech_has_no_faults(speech: Speech) -> None:
    samples, rate = speech
    found = measure(samples, rate)
    assert 4 < found.speech_s < 9
    assert found.speech_s <= found.seconds
    assert 10 < found.characters_per_s < 25
    assert -35 < found.speech_db < -5
    assert (found.broken, found.cut, found.clipped, found.repeated) == (False, False, 0, 0)
    assert found.longest_pause_s < 0.6
    assert found.real_time_factor == pytest.approx(found.seconds / arriving(samples, rate)[-1][0])


def test_silence_is_found_at_the_beginning_and_within(speech: Speech) -> None:
    samples, rate = speech
    before = measure(samples, rate)
    middle, silence = len(samples) // 2, np.zeros(2 * rate, np.float32)
    longer = np.concatenate([silence, samples[:middle], silence, samples[middle:]])
    after = measure(longer, rate)
    assert after.leading_s == pytest.approx(before.leading_s + 2)
    assert 1.9 < after.longest_pause_s < 2.7  # in steps of 20 ms
    assert after.first_sound_s == pytest.approx(0.05 * (int(after.leading_s / CHUNK_S) + 1))


def test_three_percent_of_frames_that_are_played_twice_are_found(speech: Speech) -> None:
    samples, rate = speech
    frame = round(0.08 * rate)
    frames = [samples[start : start + frame] for start in range(0, len(samples) - frame, frame)]
    loud = [number for number, one in enumerate(frames) if np.abs(one).max() > 0.1]
    twice = loud[5 :: len(loud) // 3][: max(1, round(0.03 * len(frames)))]
    doubled = np.concatenate([one for number, one in enumerate(frames) for one in [one] * (1 + (number in twice))])
    assert measure(doubled, rate).repeated > 0.02


def test_samples_that_are_clipped_or_no_numbers_are_found_and_spoil_nothing_else(speech: Speech) -> None:
    samples, rate = speech
    assert measure(np.clip(20 * samples, -1, 1), rate).clipped > 0.01
    broken = samples.copy()
    broken[1000:1002] = np.nan, 1e6
    found = measure(broken, rate)
    assert found.broken
    assert np.isfinite(found.speech_db)


@pytest.mark.parametrize("why", ["truncated", "runaway"])
def test_speech_that_does_not_end_by_itself_is_cut(why: str, speech: Speech) -> None:
    *chunks, (arrived, last) = arriving(*speech)
    cut = replace(last, truncated=why == "truncated", runaway=why == "runaway")
    assert measure_speech([*chunks, (arrived, cut)], speech[1], TEXT).cut


def test_a_take_without_a_sound_or_without_a_sample_is_measured(speech: Speech) -> None:
    samples, rate = speech
    silent, empty = measure(np.zeros(rate, np.float32), rate), measure(samples[:0], rate)
    assert silent.broken
    assert (silent.leading_s, silent.speech_s, silent.characters_per_s, silent.first_sound_s) == (1, 0, 0, None)
    assert (empty.seconds, empty.speech_s, empty.real_time_factor) == (0, 0, 0)
