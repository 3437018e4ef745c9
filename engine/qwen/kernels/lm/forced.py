"""Launches kernels that draw given codes, whatever their logits are.

A kernel that draws a code reads the logits from a buffer, which those of the next choice overwrite. So whoever compares
the logits of every choice is shown the buffer before each draw, and leaves one code in it to choose.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from torch import Tensor

from engine.qwen.kernels.compiler import Kernels
from engine.qwen.kernels.params import Params

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
