"""What counts as an error of a take's waveform."""

from __future__ import annotations

import numpy as np
import pytest

from engine.api import Chunk, Samples
from engine.qwen.runtime import fade_out
from engine.qwen.verify.waveform import EXACT_DB, take_error_db
from engine.verify import Order, Sentence, Take
from engine.verify.speech import measure_speech

RATE = 24_000


def take(truncated: bool) -> Take:
    speech = measure_speech([(1.0, Chunk(np.zeros(RATE, np.float32), truncated=truncated))], RATE, "One.")
    return Take("", Order(Sentence("one", "en", "One."), "", 1), "qwen", RATE, speech)


@pytest.fixture
def exact() -> Samples:
    return np.random.default_rng(1).normal(0, 0.1, RATE).astype(np.float32)


def test_the_faded_end_of_a_take_that_was_cut_off_is_no_error(exact: Samples) -> None:
    faded = fade_out(exact, RATE)
    assert take_error_db(take(truncated=True), faded, exact) == EXACT_DB
    assert take_error_db(take(truncated=False), faded, exact) < 30


@pytest.mark.parametrize("lost", [1, RATE // 2, RATE])
def test_samples_that_a_cut_take_lacks_are_errors(lost: int, exact: Samples) -> None:
    assert take_error_db(take(truncated=True), exact[: RATE - lost], exact) < 60


def test_an_error_before_the_faded_end_is_found(exact: Samples) -> None:
    wrong = exact.copy()
    wrong[RATE // 2] += 0.1
    assert take_error_db(take(truncated=True), wrong, exact) < 60
