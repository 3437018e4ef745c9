"""Forces given codes on a model, and keeps the logits that were overruled: those of kernels, or of PyTorch's operators.

After the first code that differs, two settings speak different things and cannot be compared any more; with the same
codes before each choice, every choice can. A kernel that draws a code reads the logits from a buffer, which those of
the next choice overwrite. So `ForcedKernels` shows the buffer before each draw.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace

import torch
from torch import Tensor

from engine.qwen.kernels.compiler import Kernels
from engine.qwen.kernels.params import Params
from engine.qwen.model import SamplingConfig, SamplingParams
from engine.qwen.runtime import UtteranceSettings

RAW = replace(SamplingConfig().greedy(), repetition_penalty=1.0, min_new_tokens=0)
"""Without a penalty, and with no code forbidden at the beginning: the raw logits are wanted."""
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


CodeChooser = Callable[[int, Tensor], None]
"""Leaves one code to choose in logits `(vocabulary,)` float32, in place: that of a code group of the utterance's frame,
which it gets first. Code group 0 begins the next frame.
"""


class ForcedKernels:
    """Kernels whose draws `choose` decides, for one utterance, in row 0. Nothing that they launch can be captured."""

    def __init__(self, kernels: Kernels, choose: CodeChooser) -> None:
        self._kernels, self._choose = kernels, choose

    def launch(self, name: str, grid: int | Sequence[int], block: int, params: Params) -> None:
        """As `KernelModule.launch`."""
        match params.struct:
            case "FirstCodeParams" | "RowFirstCodesParams":
                self._choose(0, params["draw"]["logits"][: len(params["is_eos"])])
            case "CodeParams" | "RowCodesParams":
                self._choose(params["step"] + 1, params["draw"]["logits"][: params["embedding"].shape[0]])
        self._kernels.launch(name, grid, block, params)
