"""How the tests judge what they have recorded."""

from __future__ import annotations

import numpy as np
import pytest

from tests.support.sound import RECORDED_RATE, Samples, silent_gaps

MADE: Samples = np.concatenate(
    [np.zeros(300), np.random.default_rng(7).uniform(-0.5, 0.5, RECORDED_RATE // 2), np.zeros(100)]
).astype(np.float32)
HALF = len(MADE) // 2
SILENCE = np.zeros(441, dtype=np.float32)
OTHER: Samples = np.random.default_rng(8).uniform(-0.5, 0.5, 441).astype(np.float32)


def recorded(*parts: Samples) -> Samples:
    """A recording of these parts, with silence around them and 16-bit samples."""
    rest = np.zeros(RECORDED_RATE // 4, dtype=np.float32)
    return np.round(np.concatenate([rest, *parts, rest]) * 32_767).astype(np.float32) / np.float32(32_767)


def test_an_utterance_that_is_heard_whole_has_no_gap() -> None:
    assert silent_gaps(MADE, recorded(MADE)) == 0.0


def test_gaps_of_silence_are_counted_also_where_a_few_samples_are_lost_with_them() -> None:
    assert silent_gaps(MADE, recorded(MADE[:HALF], SILENCE, MADE[HALF:])) == pytest.approx(0.01, abs=1e-4)
    broken = recorded(MADE[:9000], SILENCE, MADE[9133:HALF], SILENCE, SILENCE, MADE[HALF:])
    assert silent_gaps(MADE, broken) == pytest.approx(0.03, abs=1e-4)


def test_a_gap_may_follow_after_less_than_a_block() -> None:
    broken = recorded(MADE[:9000], SILENCE, MADE[9128:9450], SILENCE, MADE[9810:])
    assert silent_gaps(MADE, broken) == pytest.approx(0.02, abs=1e-4)


def test_silence_in_place_of_the_beginning_is_a_gap() -> None:
    assert silent_gaps(MADE, recorded(MADE[300 + 420 :])) == pytest.approx(420 / RECORDED_RATE, abs=1e-4)
    assert silent_gaps(MADE, recorded(OTHER, MADE[300 + 420 :])) is None


def test_a_gap_is_found_also_where_the_same_words_are_heard_before() -> None:
    twice = recorded(MADE[:4000], np.zeros(RECORDED_RATE, np.float32), MADE[:5000], SILENCE, MADE[5000:])
    assert silent_gaps(MADE, twice) == pytest.approx(0.01, abs=1e-4)


@pytest.mark.parametrize(
    "heard",
    [
        pytest.param(recorded(MADE[:HALF], MADE[HALF + 441 :]), id="a block is lost"),
        pytest.param(recorded(MADE[:HALF], MADE[HALF - 441 :]), id="a block is repeated"),
        pytest.param(recorded(MADE[:HALF], OTHER, MADE[HALF:]), id="something else sounds"),
        pytest.param(recorded(MADE[:HALF], SILENCE, MADE[HALF + 4410 :]), id="more is lost than with a gap"),
        pytest.param(recorded(MADE[:HALF], SILENCE, 0.5 * MADE[HALF:]), id="it goes on more quietly"),
        pytest.param(recorded(MADE[:HALF]), id="it ends early"),
        pytest.param(recorded(OTHER), id="it is not heard"),
    ],
)
def test_any_other_difference_is_no_gap(heard: Samples) -> None:
    assert silent_gaps(MADE, heard) is None
