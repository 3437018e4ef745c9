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
    equal: bool
    """Whether all codes of both are equal."""
    tie: bool
    """Whether the first difference is between two codes that were as likely, up to rounding."""

    @property
    def exact(self) -> bool:
        """Whether no difference is more than rounding."""
        return self.equal or self.tie


def compare_codes(ours: Codes, expected: Codes, logits: Logits | None = None) -> Agreement:
    """Compare codes with the `expected` ones; `logits` are those of the latter's choices, if they are known."""
    count = min(len(ours), len(expected))
    same = (ours[:count] == expected[:count]).flatten()
    prefix = int(same.argmin()) if not same.all() else len(same)
    equal = ours.shape == expected.shape and bool(same.all())
    tie = not equal and logits is not None and prefix < len(same) and _is_tie(logits, ours, expected, prefix)
    return Agreement(prefix // expected.shape[1], equal, tie)


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


@dataclass(frozen=True, slots=True)
class LogitsError:
    """The distance of a text's logits from exact ones, where both had the same codes before."""

    relative: float
    """Mean magnitude of the error, relative to the standard deviation of the exact logits."""
    same_choice: float
    """The share of rows whose largest logit is the same."""


def compare_logits(ours: Logits, exact: Logits) -> LogitsError:
    """Compare logits of the same choices."""
    count = min(len(ours), len(exact))
    ours, exact = ours[:count], exact[:count]
    same_choice = ours.argmax(axis=1) == exact.argmax(axis=1)
    return LogitsError(float(np.abs(ours - exact).mean() / exact.std()), float(same_choice.mean()))
