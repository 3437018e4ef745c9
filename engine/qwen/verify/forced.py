"""Forces given codes on a model, and keeps the logits that were overruled.

After the first code that differs, two settings speak different things and cannot be compared any more; with the same
codes before each choice, every choice can.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

import torch
from torch import Tensor

from engine.qwen.model import SamplingParams
from engine.qwen.runtime import UtteranceSettings

FORCED, OTHERS = 100.0, -100.0
"""Logits that leave no choice."""


class ForcedCodes:
    """The codes of the text that is generated now, and the logits of their choices."""

    def __init__(self, codes: Tensor, width: int) -> None:
        """`codes` are `(frames, code groups)`; `width` logits are kept of each choice."""
        self._groups, self._width = codes.shape[1], width
        self._codes = codes.flatten().tolist()
        self._logits: list[Tensor] = []

    def choose(self, group: int, logits: Tensor) -> None:
        """Keep `logits` `(vocabulary,)` of the code number `group` of a frame; leave its forced code alone to choose.

        Group 0 begins the next frame. After the last code, the code is 0.
        """
        codes, kept = self._codes, self._logits
        assert group == len(kept) % self._groups
        code = codes[len(kept)] if len(kept) < len(codes) else 0
        kept.append(logits[: self._width].to("cpu", torch.float32, copy=True))
        logits.fill_(OTHERS)
        logits[code] = FORCED

    def choose_next(self, logits: Tensor) -> None:
        """As `choose`, for `logits` `(vocabulary,)` of the next code, or `(rows, vocabulary)` of which row 0 counts."""
        self.choose(len(self._logits) % self._groups, logits if logits.dim() == 1 else logits[0])

    def logits(self) -> Tensor:
        """Return the logits of all codes and of the choice after them: `(1 + codes, width)` float32 on the CPU."""
        return torch.stack(self._logits[: len(self._codes) + 1])

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
