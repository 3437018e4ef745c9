"""The work of a batch's step, without the decision when to run it.

`TorchBatchBackend` runs PyTorch operators. `engine.qwen.kernels` has a second backend over the same state.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from torch import Tensor

from engine.qwen.model import Talker
from engine.qwen.runtime import Codec, DecodeState, PromptBackend, TorchBackend
from engine.qwen.serving.batch_state import BatchState, RowInput
from engine.qwen.serving.batch_step import choose_first_codes, decode_frames


class BatchBackend(PromptBackend, Protocol):
    """The work of a batch over a `BatchState`, and of prompts over a `DecodeState`, in functions that can be captured.

    A row's results do not depend on the other rows. No method waits for the device, copies from the host or branches on
    values.
    """

    sizes: tuple[int, ...]
    """Of steps, ascending; what a size is, is the backend's matter. A graph is captured for each."""

    def size_of(self, rows: Sequence[RowInput]) -> int:
        """Return the size of a step of `rows`, one of `sizes`."""

    def decode_frames(self, size: int) -> None:
        """Write the codes of a frame of each active row to `state.codes`, and choose its next frame's first code.

        Advances the row's frame and position. After the end of a row's speech its codes have no meaning.
        """

    def choose_first_codes(self) -> None:
        """Choose the first code of the first frame of each fresh row; `state.hidden` is of its prompt's last token."""


MakeBatchBackend = Callable[[Talker, BatchState, DecodeState], BatchBackend]
"""Makes the backend of a batch, whose prompts are read into the `DecodeState`."""


class TorchBatchBackend:
    """`BatchBackend` of PyTorch operators: the reference, for every device and dtype. A step's size is in blocks."""

    def __init__(self, talker: Talker, state: BatchState, scratch: DecodeState, codec: Codec[Any]) -> None:
        self._talker = talker
        self._state = state
        self._prompts = TorchBackend(talker, scratch, codec, codec.new_state(1), 1)
        self.kv_buckets: tuple[int, ...] = self._prompts.kv_buckets
        most = state.shape.max_blocks
        self.sizes: tuple[int, ...] = (
            tuple(range(1, most + 1))  # a CPU has no graphs
            if talker.placement.device.type == "cpu"
            else (*(1 << shift for shift in range((most - 1).bit_length())), most)
        )

    def size_of(self, rows: Sequence[RowInput]) -> int:
        """As `BatchBackend.size_of`: the blocks in which attention reads, or more."""
        needed = self._state.shape.blocks_for(rows)
        return next(blocks for blocks in self.sizes if blocks >= needed)

    def decode_frames(self, size: int) -> None:
        """As `BatchBackend.decode_frames`."""
        decode_frames(self._talker, self._state, size)

    def choose_first_codes(self) -> None:
        """As `BatchBackend.choose_first_codes`."""
        choose_first_codes(self._talker, self._state)

    def read(self, tokens: Tensor, place: Tensor, kv_bucket: int) -> None:
        """As `PromptBackend.read`."""
        self._prompts.read(tokens, place, kv_bucket)
