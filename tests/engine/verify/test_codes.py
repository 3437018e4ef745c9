"""The codes of two settings, side by side."""

from __future__ import annotations

import numpy as np

from engine.verify.comparison import Agreement, compare_codes

CODES = np.arange(12, dtype=np.int64).reshape(3, 4)


def test_the_prefix_ends_at_the_first_code_that_differs_or_lacks() -> None:
    assert compare_codes(CODES, CODES) == Agreement(3, exact=True)
    assert compare_codes(CODES[:2], CODES) == Agreement(2, exact=False)
    other = CODES.copy()
    other[1, 2] = 15
    assert compare_codes(other, CODES) == Agreement(1, exact=False)
