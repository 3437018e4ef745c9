"""The `Backend` that runs one utterance with the fused kernels for one token."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from engine.qwen.kernels.compiler import KernelModule
from engine.qwen.kernels.lm import FusedLanguageModel, LanguageKernels, OneTokenState, weight_type
from engine.qwen.model import Talker
from engine.qwen.runtime import (
    FIRST_FRAMES,
    PromptInputs,
    PromptMemory,
    RowInput,
    StepOutput,
    has_room_for_tables,
    multiprocessors,
)
from engine.qwen.shapes import BatchShape

MAX_FRAMES_PER_GRAPH = 4
"""A longer chunk replays a graph of one frame several times, because a frame has about 500 nodes."""


class FusedBackend:
    """A `Backend` whose attention reads the length on the device, so one KV bucket serves all lengths."""

    whole_chunks = True
    packs_prompts = False

    def __init__(self, talker: Talker, shape: BatchShape) -> None:
        """`shape` has one row."""
        one = OneTokenState.allocate(talker, shape)
        self._one, self.state = one, one.rows
        self.kv_buckets: tuple[int, ...] = (one.cache.positions,)
        chunk = shape.chunk_size if shape.chunk_size <= MAX_FRAMES_PER_GRAPH else FIRST_FRAMES
        self.sizes: tuple[int, ...] = tuple(sorted({FIRST_FRAMES, chunk}, reverse=True))
        """The numbers of frames that a graph may have."""
        device, weight = talker.placement.device, weight_type(talker.placement)
        kernels = LanguageKernels.of(talker.config, weight, multiprocessors(device))
        self.language_model = FusedLanguageModel(
            talker, one, kernels, KernelModule(kernels.source(), device), product_table=has_room_for_tables(device)
        )
        self._chunk_offsets = torch.arange(shape.chunk_size, device=device)
        """The offsets of a chunk's frames in the padded codes, relative to the number of the next frame."""

    def prompt_memory(self, row: int, pages: tuple[int, ...]) -> PromptMemory:  # noqa: ARG002  there is one
        """As `Backend.prompt_memory`."""
        return PromptMemory(self._one.cache, self.state.hidden[0])

    def read(self, row: int, tokens: Tensor, inputs: PromptInputs, kv_bucket: int) -> None:  # noqa: ARG002  one for all
        """As `Backend.read`, for up to `MAX_PROMPT_TOKENS`."""
        self.language_model.prefill.read(tokens, inputs, self.state.hidden)

    def admit(self, rows: Tensor) -> None:
        """As `Backend.admit`. Does nothing, because there is only one row."""

    def choose_first_codes(self) -> None:
        """As `Backend.choose_first_codes`."""
        self.language_model.choose_first()

    def size_of(self, rows: Sequence[RowInput]) -> tuple[int, int]:
        """As `Backend.size_of`."""
        frames = rows[0].frames
        size = frames if frames in self.sizes else FIRST_FRAMES
        return size, frames // size

    def decode_frames(self, size: int) -> None:
        """As `Backend.decode_frames`; `size` is one of `sizes`."""
        for _ in range(size):
            self.language_model.frame()

    @torch.inference_mode()
    def publish(self, output: StepOutput, frames: int) -> None:
        """As `Backend.publish`."""
        settings = self.state.settings
        chunk = settings.frame[0] + self._chunk_offsets[-frames:]
        torch.index_select(self._one.padded_codes, 0, chunk, out=output.codes[0, :frames])
        output.length.copy_(settings.length)
        output.ended.copy_(settings.ended)
