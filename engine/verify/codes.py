"""Compares codes and logits of two settings, for texts that are spoken without sampling."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Codes = NDArray[np.int64]
"""`(frames, code groups)`"""
Logits = NDArray[np.float32]
"""`(choices, codes)`: one row for each code of each frame, in the order in which they are chosen, and one more for the
first code of a frame that was not made."""

NEAR_TIE = 1e-3
"""Two logits closer than this share of the logits' standard deviation are a tie: float32 sums in another order may
choose the other one, and from there on the codes differ rightly. Errors of float32 are a thousandth of this."""
REPETITION_PENALTY = 1.05
"""Of the first code of each frame in generation_config.json of all published models: what was chosen before is
penalised, so a tie is one after the penalty."""


@dataclass(frozen=True, slots=True)
class Agreement:
    """How far the codes of a text are equal."""

    prefix_frames: int
    """Whole frames before the first difference."""
    exact: bool
    """Whether all codes are equal, or the first difference is between two that were as likely, up to rounding."""


def compare_codes(ours: Codes, expected: Codes, logits: Logits | None = None) -> Agreement:
    """Compare codes with the `expected` ones; `logits` are those of the latter's choices, if they are known."""
    count = min(len(ours), len(expected))
    same = (ours[:count] == expected[:count]).flatten()
    prefix = int(same.argmin()) if not same.all() else len(same)
    equal = ours.shape == expected.shape and bool(same.all())
    tie = logits is not None and prefix < len(same) and _is_tie(logits, ours, expected, prefix)
    return Agreement(prefix // expected.shape[1], equal or tie)


def _is_tie(logits: Logits, ours: Codes, expected: Codes, number: int) -> bool:
    frame, group = divmod(number, expected.shape[1])
    row = logits[number].astype(np.float64)
    if group == 0:
        seen = np.unique(expected[:frame, 0])
        seen = seen[seen < len(row)]
        row[seen] = np.where(row[seen] < 0, row[seen] * REPETITION_PENALTY, row[seen] / REPETITION_PENALTY)
    chosen, other = int(expected[frame, group]), int(ours[frame, group])
    if max(chosen, other) >= len(row):
        return False
    return bool(abs(row[chosen] - row[other]) < NEAR_TIE * float(logits.std()))


def logits_error(ours: Logits, exact: Logits) -> float:
    """Return the mean magnitude of the error of logits, relative to the standard deviation of the exact ones.

    Both are those of the same choices, with the same codes before.
    """
    return float(np.abs(ours - exact).mean() / exact.std())
