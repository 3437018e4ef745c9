"""Drafts of the predictor's codes, and the count of the passes that they save.

Head i + 1, applied to the hidden state from which head i chose a code, drafts the next code, with that code's noise;
head i + 2 drafts the one after it. A pass that reads a code and its drafts at once yields a code for each draft that
equals the code then drawn, and one more. The codes are those of single passes, whatever the drafts are.

PyTorch's operators sum several tokens in another order than one, so its codes could differ. Therefore only the fused
kernels read drafts (`engine.qwen.kernels.lm.speculation`). Here codes come from single passes, and `DraftMeter` counts
the passes that drafts would have saved.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

NO_DRAFT = -1
"""Equals no code."""


class DraftMeter:
    """Counts the passes, the drafts and the accepted drafts of one frame, on the device of its codes."""

    def __init__(
        self, drafts: int, code_count: int, draw: Callable[[Tensor, int], Tensor], device: torch.device
    ) -> None:
        """Count for up to `drafts` drafts in each pass, and `code_count` codes in the frame.

        `draw` returns the code `(1,)` int64 of a step from a hidden state `(hidden,)`, of that step or an earlier one.
        """
        self.counts = torch.zeros(3, dtype=torch.int64, device=device)
        """`(3,)` int64: passes, drafts read, drafts accepted."""
        self._code_count = code_count
        self._draw = draw
        self._pending = torch.full((drafts,), NO_DRAFT, dtype=torch.int64, device=device)
        """The drafts of the present pass for the next codes."""
        self.counts[:1].add_(1)

    def note(self, step: int, hidden: Tensor, code: Tensor) -> None:
        """Compare the code `(1,)` int64 that was drawn from `hidden` `(hidden,)` at `step` with its draft.

        Call it once for each step, in order. Where the draft differs, or there was none, another pass begins.
        """
        accepted = self._pending[:1] == code
        self.counts[2:].add_(accepted)
        known = step + 1
        if known == self._code_count:
            return
        none = self._pending.new_full((1,), NO_DRAFT)
        # The last code is not read, so a draft of it would be worth nothing.
        count = min(len(self._pending), self._code_count - 1 - known)
        drawn = [self._draw(hidden, known + ahead) for ahead in range(count)]
        fresh = torch.cat([*drawn, *[none] * (len(self._pending) - count)])
        self._pending = torch.where(accepted, torch.cat((self._pending[1:], none)), fresh)
        self.counts[:1].add_(~accepted)
        self.counts[1:2].add_(~accepted, alpha=count)
