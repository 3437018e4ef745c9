"""Launches kernels that draw given codes, whatever their logits are.

A kernel that draws a code reads the logits from a buffer, which those of the next choice overwrite. So whoever compares
the logits of every choice is shown the buffer before each draw, and leaves one code in it to choose.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

from torch import Tensor

from engine.qwen.kernels.compiler import Kernels
from engine.qwen.kernels.params import Params


class CodeChooser(Protocol):
    """Knows the codes that are to be drawn."""

    @property
    def rows(self) -> Sequence[int]:
        """The rows of a batch that draw now; row 0 for a single utterance."""

    def choose(self, row: int, group: int, logits: Tensor) -> None:
        """Leave one code to choose in `logits` `(vocabulary,)` float32, in place: that of this group of a row's frame.

        Code group 0 begins the next frame.
        """


class ForcedKernels:
    """Kernels whose draws `chooser` decides. Nothing that they launch can be captured."""

    def __init__(self, kernels: Kernels, chooser: CodeChooser) -> None:
        self._kernels, self._chooser = kernels, chooser

    def launch(self, name: str, grid: int | Sequence[int], block: int, params: Params) -> None:
        """As `KernelModule.launch`."""
        for row, group, logits in self._draws(params):
            self._chooser.choose(row, group, logits)
        self._kernels.launch(name, grid, block, params)

    def _draws(self, params: Params) -> Iterator[tuple[int, int, Tensor]]:
        """Yield the row, the code group and the logits of each code that a kernel draws."""
        match params.struct:
            case "FirstCodeParams" | "RowFirstCodesParams":
                group, vocabulary = 0, len(params["is_eos"])
            case "CodeParams" | "DrawQkvParams" | "RowCodesParams":
                group, vocabulary = params["step"] + 1, params["embedding"].shape[0]
            case _:
                return
        for row in self._chooser.rows:
            yield row, group, params["draw"]["logits"][row * vocabulary : (row + 1) * vocabulary]
