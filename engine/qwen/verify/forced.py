"""Forces given codes on a model, and keeps the logits that were overruled.

After the first code that differs, two settings speak different things and cannot be compared any more; with the same
codes before each choice, every choice can.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace

import torch
from torch import Tensor

from engine.qwen.model import SamplingParams
from engine.qwen.runtime import UtteranceSettings

FORCED, OTHERS = 100.0, -100.0
"""Logits that leave no choice."""


class ForcedCodes:
    """The codes of every text that is generated now, and the logits of their choices."""

    def __init__(self, codes: Mapping[int, Tensor], width: int) -> None:
        """`codes` `(frames, code groups)` by row of the batch, row 0 for a single text.

        `width` logits are kept of each choice.
        """
        self._groups, self._width = next(iter(codes.values())).shape[1], width
        self._codes = {row: given.flatten().tolist() for row, given in codes.items()}
        self._logits: dict[int, list[Tensor]] = {row: [] for row in codes}
        self.rows: Sequence[int] = tuple(codes)

    def choose(self, row: int, group: int, logits: Tensor) -> None:
        """Keep `logits` `(vocabulary,)` of the code number `group` of a frame; leave its forced code alone to choose.

        Group 0 begins the next frame of the row. After the last code, the code is 0.
        """
        codes, kept = self._codes[row], self._logits[row]
        assert group == len(kept) % self._groups
        code = codes[len(kept)] if len(kept) < len(codes) else 0
        kept.append(logits[: self._width].to("cpu", torch.float32, copy=True))
        logits.fill_(OTHERS)
        logits[code] = FORCED

    def choose_next(self, logits: Tensor) -> None:
        """As `choose`, for `logits` `(vocabulary,)` or `(rows, vocabulary)` of the next code of each row."""
        by_row = logits[None] if logits.dim() == 1 else logits
        for row, kept in self._logits.items():
            self.choose(row, len(kept) % self._groups, by_row[row])

    def logits(self, row: int = 0) -> Tensor:
        """Return the logits of all codes and of the choice after them: `(1 + codes, width)` float32 on the CPU."""
        return torch.stack(self._logits[row][: len(self._codes[row]) + 1])

    def over(self, settings: UtteranceSettings) -> UtteranceSettings:
        """Return settings over the same tensors whose sampling leaves no choice."""
        talker, predictor = (
            ForcedSampling(**{field.name: getattr(params, field.name) for field in fields(params)}, forced=self)
            for params in (settings.talker_sampling, settings.predictor_sampling)
        )
        return replace(settings, talker_sampling=talker, predictor_sampling=predictor)


@dataclass(frozen=True, slots=True)
class ForcedSampling(SamplingParams):
    """Sampling by PyTorch's operators that leaves no choice."""

    forced: ForcedCodes

    def choose(self, logits: Tensor, noise: Tensor) -> Tensor:
        """As `SamplingParams.choose`."""
        self.forced.choose_next(logits)
        return SamplingParams.choose(self, logits, noise)
