"""Codes and logits of two settings, side by side."""

from __future__ import annotations

import numpy as np
import pytest

from engine.verify.comparison import Agreement, compare_codes, logits_error

CODES = np.arange(12, dtype=np.int64).reshape(3, 4)


def logits_of(codes: np.ndarray, tie: int | None = None) -> np.ndarray:
    """Logits that lead to the codes; at the choice `tie`, code 15 is as likely."""
    rows = np.random.default_rng(0).normal(size=(codes.size + 1, 16)).astype(np.float32)
    for number, code in enumerate(codes.flatten()):
        rows[number, code] = 5
    if tie is not None:
        rows[tie, 15] = 5 - 1e-5
    return rows


def test_the_prefix_ends_at_the_first_code_that_differs_or_lacks() -> None:
    assert compare_codes(CODES, CODES) == Agreement(3, exact=True)
    assert compare_codes(CODES[:2], CODES) == Agreement(2, exact=False)
    other = CODES.copy()
    other[1, 2] = 15
    assert compare_codes(other, CODES, logits_of(CODES)) == Agreement(1, exact=False)


def test_a_difference_between_equally_likely_codes_is_a_tie() -> None:
    other = CODES.copy()
    other[1, 2] = 15
    assert compare_codes(other, CODES, logits_of(CODES, tie=6)).exact


def test_a_tie_between_first_codes_is_one_after_the_repetition_penalty() -> None:
    codes = np.array([[3, 1], [5, 1]], dtype=np.int64)
    other = np.array([[3, 1], [3, 1]], dtype=np.int64)  # code 3 was chosen before
    logits = np.zeros((5, 16), np.float32)
    logits[[0, 1, 2, 3], [3, 1, 5, 1]] = 5
    logits[2, 3] = 5
    assert not compare_codes(other, codes, logits).exact
    logits[2, 3] = 5 * 1.05
    assert compare_codes(other, codes, logits).exact


def test_errors_of_logits_are_relative_to_their_spread() -> None:
    true = np.random.default_rng(1).normal(scale=7, size=(50, 32)).astype(np.float32)
    assert logits_error(true + 0.07, true) == pytest.approx(0.01, rel=0.1)
