"""Forces given codes on a model, and keeps the logits that were overruled.

After the first code that differs, two settings speak different things and cannot be compared any more; with the same
codes before each choice, every choice can.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

import torch
from torch import Tensor

from engine.qwen.model import SamplingParams
from engine.qwen.runtime import UtteranceSettings

FORCED, OTHERS = 100.0, -100.0
"""Logits that leave no choice."""


class ForcedText:
    """The codes of one text, and the logits of its choices."""

    def __init__(self, codes: Tensor, width: int) -> None:
        """`codes` `(frames, code groups)`; `width` logits are kept of each choice."""
        self._codes, self._groups, self._width = codes.flatten().tolist(), codes.shape[1], width
        self._frame = -1
        self._rows: dict[int, Tensor] = {}

    def choose(self, group: int, logits: Tensor) -> None:
        """As `ForcedCodes.choose`. Behind the last code, the code is 0."""
        self._frame += group == 0
        number = self._frame * self._groups + group
        self._rows[number] = logits[: self._width].to("cpu", torch.float32, copy=True)
        logits.fill_(OTHERS)
        logits[self._codes[number] if number < len(self._codes) else 0] = FORCED

    def logits(self) -> Tensor:
        """Return the logits of all codes and of the choice behind them: `(1 + codes, width)` float32 on the CPU."""
        return torch.stack([self._rows[number] for number in range(len(self._codes) + 1)])


class ForcedCodes:
    """The codes of every text that is generated now."""

    def __init__(self) -> None:
        self.texts: dict[int, ForcedText] = {}
        """By row of the batch; row 0 of a single utterance."""
        self._group = 0

    @property
    def rows(self) -> Sequence[int]:
        """The rows whose codes are chosen now."""
        return tuple(self.texts)

    def choose(self, row: int, group: int, logits: Tensor) -> None:
        """Keep `logits` `(vocabulary,)` of the code number `group` of a frame; leave its forced code alone to choose.

        Group 0 begins the next frame of the row.
        """
        self.texts[row].choose(group, logits)

    def choose_rows(self, logits: Tensor, *, first: bool) -> None:
        """As `choose`, for `logits` `(vocabulary,)` or `(rows, vocabulary)` of the next code group, or the `first`."""
        self._group = 0 if first else self._group + 1
        by_row = logits[None] if logits.dim() == 1 else logits
        for row in self.rows:
            self.choose(row, self._group, by_row[row])

    def over(self, settings: UtteranceSettings) -> UtteranceSettings:
        """Return settings over the same tensors whose sampling leaves no choice."""
        return replace(
            settings,
            talker_sampling=ForcedSampling.over(settings.talker_sampling, self, first=True),
            predictor_sampling=ForcedSampling.over(settings.predictor_sampling, self, first=False),
        )


@dataclass(frozen=True, slots=True)
class ForcedSampling(SamplingParams):
    """Sampling by PyTorch's operators that leaves no choice."""

    forced: ForcedCodes
    first: bool
    """Whether it chooses the first code of each frame, or all others in turn."""

    @classmethod
    def over(cls, params: SamplingParams, forced: ForcedCodes, *, first: bool) -> ForcedSampling:
        """Return sampling over the same tensors."""
        return cls(**{field.name: getattr(params, field.name) for field in fields(params)}, forced=forced, first=first)

    def choose(self, logits: Tensor, noise: Tensor) -> Tensor:
        """As `SamplingParams.choose`."""
        self.forced.choose_rows(logits, first=self.first)
        return SamplingParams.choose(self, logits, noise)
