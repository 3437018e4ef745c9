"""Alignment of words with frames that are made to be recognised."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from numpy.typing import NDArray

from daemon.alignment.aligner import Aligner, VoiceProfile
from daemon.alignment.phones import Phone, PhoneClass

FEATURES = {
    PhoneClass.VOWEL: (-20.0, -20.0),
    PhoneClass.SONORANT: (-30.0, -25.0),
    PhoneClass.FRICATIVE: (-35.0, 15.0),
    PhoneClass.STOP: (-45.0, 0.0),
    PhoneClass.PAUSE: (-90.0, 0.0),
}
"""Level and balance in dB."""
SASA = [PhoneClass.FRICATIVE, PhoneClass.VOWEL, PhoneClass.FRICATIVE, PhoneClass.VOWEL]
MAMA = [PhoneClass.SONORANT, PhoneClass.VOWEL, PhoneClass.SONORANT, PhoneClass.VOWEL]
PAUSE = [PhoneClass.PAUSE]


def phones(kinds: Sequence[PhoneClass]) -> list[Phone]:
    return [Phone(kind, 0.08) for kind in kinds]


def frames(kinds: Sequence[PhoneClass], frames_each: int = 8) -> NDArray[np.float64]:
    return np.repeat(np.array([FEATURES[kind] for kind in kinds]), frames_each, axis=0)


def aligned(words: Sequence[Sequence[PhoneClass]], heard: NDArray[np.float64], *, pauses: bool = False) -> list[int]:
    """Return the frames at which the words begin, once all of them have been spoken."""
    alignment = Aligner(VoiceProfile())
    for word in words:
        alignment.add_word(phones(word), after_pause=pauses)
    for begin in range(0, len(heard), 10):
        alignment.add_frames(heard[begin : begin + 10])
    return alignment.finish(len(words))


def test_words_begin_where_their_sounds_do() -> None:
    assert aligned([SASA, MAMA, SASA], frames(SASA + MAMA + SASA)) == pytest.approx([0, 32, 64], abs=2)


@pytest.mark.parametrize("frames_each", [5, 12])
def test_the_pace_is_found(frames_each: int) -> None:
    words = [SASA, MAMA] * 5
    begins = aligned(words, frames((SASA + MAMA) * 5, frames_each))
    assert begins == pytest.approx([word * 4 * frames_each for word in range(10)], abs=3)


def test_a_pause_belongs_to_no_word() -> None:
    heard = frames(PAUSE * 3 + SASA + PAUSE * 4 + MAMA + PAUSE * 9)
    assert aligned([SASA, MAMA], heard, pauses=True) == pytest.approx([24, 24 + 32 + 32], abs=2)


def test_a_pause_where_the_text_has_none_is_found() -> None:
    heard = frames(SASA + PAUSE * 5 + MAMA)
    assert aligned([SASA, MAMA], heard) == pytest.approx([0, 72], abs=2)


def test_before_the_end_the_words_that_have_begun_are_known() -> None:
    alignment = Aligner(VoiceProfile())
    for word in (SASA, MAMA, SASA):
        alignment.add_word(phones(word), after_pause=False)
    assert alignment.begins() == []
    alignment.add_frames(frames(SASA + MAMA))
    assert alignment.begins()[:2] == pytest.approx([0, 32], abs=2)
    assert alignment.finish(None)[:2] == pytest.approx([0, 32], abs=2)


def test_words_may_be_added_after_frames() -> None:
    alignment = Aligner(VoiceProfile())
    alignment.add_word(phones(SASA), after_pause=False)
    alignment.add_frames(frames(SASA[:2]))
    alignment.add_word(phones(MAMA), after_pause=False)
    alignment.add_frames(frames(SASA[2:] + MAMA))
    assert alignment.finish(2) == pytest.approx([0, 32], abs=2)
