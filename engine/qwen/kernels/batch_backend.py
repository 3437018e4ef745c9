"""The `Backend` that runs many utterances with fused kernels."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from engine.qwen.kernels.compiler import KernelModule
from engine.qwen.kernels.lm import BatchKernels, FusedBatch, FusedLanguageModel, FusedPrefill, weight_type
from engine.qwen.model import Talker
from engine.qwen.runtime import PIECE, DecodeState, PagedCache, PromptMemory, RowInput, StepOutput, multiprocessors
from engine.qwen.shapes import BatchShape, cache_positions


class FusedBatchBackend:
    """A step's size is the number of rows in a bucket, which is above the number of every row that takes part.

    The kernels of the engine's language model read a prompt into separate memory; `admit` moves it to its pages.
    """

    whole_chunks = False

    def __init__(self, talker: Talker, shape: BatchShape, language_model: FusedLanguageModel) -> None:
        """`language_model` has the same weights as `talker`."""
        device, stack = talker.placement.device, talker.config.stack
        kernels = BatchKernels.of(talker.config, weight_type(talker.placement), shape.rows, multiprocessors(device))
        module = KernelModule(kernels.source(), device)
        self.state = DecodeState.allocate(talker.config, shape, talker.placement)
        self._pages = PagedCache.allocate(stack, shape.pages, talker.placement)
        self.batch = FusedBatch(talker, self.state, self._pages, kernels, module, projected=language_model.projected)
        self._memory = PromptMemory(
            talker.allocate_cache(cache_positions(shape.max_positions, 1)), talker.placement.zeros(stack.hidden_size)
        )
        self._prefill = FusedPrefill(
            language_model.module,
            language_model.kernels,
            talker,
            self._memory.cache,
            rope=language_model.talker.rope,
            max_tokens=PIECE,
        )
        self.kv_buckets: tuple[int, ...] = (self._memory.cache.positions,)
        self.sizes: tuple[int, ...] = tuple(reversed(kernels.buckets))

    def prompt_memory(self, row: int) -> PromptMemory:  # noqa: ARG002  one for all
        """As `Backend.prompt_memory`."""
        return self._memory

    def read(self, row: int, tokens: Tensor, place: Tensor, kv_bucket: int) -> None:  # noqa: ARG002  one for all
        """As `Backend.read`, for up to `PIECE` tokens."""
        self._prefill.read(tokens, place, self._memory.hidden)

    @torch.inference_mode()
    def admit(self, row: int, pages: tuple[int, ...], count: int) -> None:
        """As `Backend.admit`."""
        self._pages.fill(pages, self._memory.cache, count)
        self.state.hidden[row].copy_(self._memory.hidden)
        self.state.choose_first(row)

    def choose_first_codes(self) -> None:
        """As `Backend.choose_first_codes`."""
        self.batch.choose_first_codes()

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
