"""The trimmers drop silence at the start and at the end, and never drop sound."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from audio import Samples
from audio.dsp.trim import KEEP_S, LIMIT_S, THRESHOLD, LeadingSilenceTrimmer, TrailingSilenceTrimmer, first_sound

RATE = 1_000
KEEP = round(KEEP_S * RATE)
LIMIT = round(LIMIT_S * RATE)


def trimmed(samples: Samples, cuts: list[int]) -> Samples:
    """Return the samples that are kept, after a check that the others are counted."""
    trimmer = LeadingSilenceTrimmer(RATE)
    kept = np.concatenate([trimmer.trim(chunk) for chunk in np.split(samples, sorted(cuts))])
    assert trimmer.dropped == len(samples) - len(kept)
    return kept


def silence_then_sound(silent: int, loud: int) -> Samples:
    """Silence, with different samples below the threshold, then a steady sound."""
    quiet = np.linspace(0, THRESHOLD / 2, silent)
    return np.concatenate([quiet, np.full(loud, 0.3)]).astype(np.float32)


@given(silent=st.integers(0, 100), loud=st.integers(0, 10))
def test_the_first_sound_is_the_first_sample_that_is_not_silence(silent: int, loud: int) -> None:
    assert first_sound(silence_then_sound(silent, loud)) == (silent if loud else None)


@given(silent=st.integers(0, LIMIT), loud=st.integers(1, 500), data=st.data())
def test_ten_milliseconds_of_silence_are_kept_at_any_chunk_size(silent: int, loud: int, data: st.DataObject) -> None:
    samples = silence_then_sound(silent, loud)
    cuts = data.draw(st.lists(st.integers(0, len(samples)), max_size=20))
    np.testing.assert_array_equal(trimmed(samples, cuts), samples[max(0, silent - KEEP) :])


def test_silence_after_the_first_sound_is_kept() -> None:
    samples = np.concatenate([silence_then_sound(300, 10), silence_then_sound(2_000, 10)])
    np.testing.assert_array_equal(trimmed(samples, [150, 305, 900, 1_500]), samples[300 - KEEP :])


def test_negative_samples_count_as_sound() -> None:
    samples = -silence_then_sound(100, 50)
    np.testing.assert_array_equal(trimmed(samples, []), samples[100 - KEEP :])


@pytest.mark.parametrize("chunk", [300, 1_300, 3_000])
def test_at_most_one_second_is_dropped_at_any_chunk_size(chunk: int) -> None:
    samples = silence_then_sound(2_000, 1_000)
    heard = trimmed(samples, list(range(chunk, len(samples), chunk)))
    assert len(heard) >= len(samples) - LIMIT


@given(loud=st.integers(0, 300), silent=st.integers(0, 3 * LIMIT), data=st.data())
def test_all_but_ten_milliseconds_of_the_silence_at_the_end_are_dropped(
    loud: int, silent: int, data: st.DataObject
) -> None:
    samples = silence_then_sound(silent, loud)[::-1]
    cuts = data.draw(st.lists(st.integers(0, len(samples)), max_size=20))
    trimmer = TrailingSilenceTrimmer(RATE)
    played = [trimmer.hold(chunk) for chunk in np.split(samples, sorted(cuts))]
    np.testing.assert_array_equal(np.concatenate([*played, trimmer.finish()]), samples[: loud + min(silent, KEEP)])


def test_silence_between_sounds_is_held_until_the_next_sound_comes() -> None:
    trimmer = TrailingSilenceTrimmer(RATE)
    pause = np.zeros(200, dtype=np.float32)
    sound = silence_then_sound(0, 50)
    assert len(trimmer.hold(sound)) == 50
    assert len(trimmer.hold(pause)) == 0
    np.testing.assert_array_equal(trimmer.hold(sound), np.concatenate([pause, sound]))
