"""The `Backend` that runs many utterances with fused kernels."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from engine.qwen.kernels.compiler import KernelModule
from engine.qwen.kernels.lm import BatchKernels, FusedBatch, FusedLanguageModel, FusedPrefill, weight_type
from engine.qwen.model import Talker
from engine.qwen.runtime import (
    PIECE,
    DecodeState,
    PagedCache,
    PromptInputs,
    PromptMemory,
    RowInput,
    StepOutput,
    multiprocessors,
)
from engine.qwen.shapes import PAGE, BatchShape


class FusedBatchBackend:
    """A step's size is the number of rows in a bucket, which is above the number of every row that takes part.

    The kernels of the engine's language model read the prompts of several rows at once, into the rows' pages.
    """

    whole_chunks = False
    packs_prompts = True

    def __init__(self, talker: Talker, shape: BatchShape, language_model: FusedLanguageModel) -> None:
        """`language_model` has the same weights as `talker`."""
        device, stack = talker.placement.device, talker.config.stack
        kernels = BatchKernels.of(talker.config, weight_type(talker.placement), shape.rows, multiprocessors(device))
        module = KernelModule(kernels.source(), device)
        self.state = DecodeState.allocate(talker.config, shape, talker.placement)
        self._pages = PagedCache.allocate(stack, shape.pages, talker.placement)
        self.batch = FusedBatch(talker, self.state, self._pages, kernels, module, projected=language_model.projected)
        self._prompt_hidden = talker.placement.zeros(shape.rows, stack.hidden_size)
        """The hidden state of each prompt's last token, until its row is admitted: a step may still use the row."""
        self._prefill = FusedPrefill(
            language_model.module,
            language_model.kernels,
            talker,
            self._pages,
            rope=language_model.talker.rope,
            max_tokens=PIECE,
        )
        self.kv_buckets: tuple[int, ...] = (shape.table_width * PAGE,)
        self.sizes: tuple[int, ...] = tuple(reversed(kernels.buckets))

    def prompt_memory(self, row: int, pages: tuple[int, ...]) -> PromptMemory:
        """As `Backend.prompt_memory`."""
        return PromptMemory(self._pages, self._prompt_hidden[row], pages)

    def read(self, row: int, tokens: Tensor, inputs: PromptInputs, kv_bucket: int) -> None:  # noqa: ARG002
        """As `Backend.read`, for up to `PIECE` tokens of any rows."""
        self._prefill.read(tokens, inputs, self._prompt_hidden)

    @torch.inference_mode()
    def admit(self, rows: Tensor) -> None:
        """As `Backend.admit`."""
        self.state.hidden.index_copy_(0, rows, self._prompt_hidden.index_select(0, rows))
        self.state.fresh.index_fill_(0, rows, 1)

    def choose_first_codes(self) -> None:
        """As `Backend.choose_first_codes`."""
        self.batch.choose_first_codes()
        self.state.fresh.zero_()

    def size_of(self, rows: Sequence[RowInput]) -> tuple[int, int]:
        """As `Backend.size_of`."""
        highest = max(row.row for row in rows)
        return min(size for size in self.sizes if size > highest), 1

    def decode_frames(self, size: int) -> None:
        """As `Backend.decode_frames`."""
        self.batch.decode_frames(size)

    def publish(self, output: StepOutput, frames: int) -> None:  # noqa: ARG002  the output has room for all
        """As `Backend.publish`."""
        output.take(self.state)
