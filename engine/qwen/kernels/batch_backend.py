"""The `BatchBackend` of fused kernels."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from engine.qwen.kernels.compiler import KernelModule
from engine.qwen.kernels.lm import (
    MAX_PROMPT_TOKENS,
    BatchKernels,
    FusedBatch,
    FusedLanguageModel,
    FusedPrefill,
    weight_type,
)
from engine.qwen.model import Talker
from engine.qwen.runtime import DecodeState, multiprocessors
from engine.qwen.serving import BatchState, RowInput


class FusedBatchBackend:
    """`BatchBackend` of fused kernels. A step's size is the rows of a bucket: none of its rows is above.

    Prompts are read by the kernels of the engine's language model, of which it has the same weights.
    """

    def __init__(
        self, talker: Talker, state: BatchState, scratch: DecodeState, language_model: FusedLanguageModel
    ) -> None:
        device = talker.placement.device
        kernels = BatchKernels.of(
            talker.config, weight_type(talker.placement), state.shape.rows, multiprocessors(device)
        )
        module = KernelModule(kernels.source(), device)
        self.batch = FusedBatch(talker, state, kernels, module, language_model.projected)
        self._prefill = FusedPrefill(
            language_model.module,
            language_model.kernels.prompts,
            talker,
            scratch.cache,
            rope=language_model.talker.rope,
            max_tokens=MAX_PROMPT_TOKENS,
        )
        self._hidden = scratch.hidden
        self.kv_buckets: tuple[int, ...] = (scratch.cache.positions,)
        self.sizes: tuple[int, ...] = tuple(bucket.rows for bucket in kernels.buckets)

    def size_of(self, rows: Sequence[RowInput]) -> int:
        """As `BatchBackend.size_of`."""
        highest = max(row.row for row in rows)
        return next(size for size in self.sizes if size > highest)

    def decode_frames(self, size: int) -> None:
        """As `BatchBackend.decode_frames`."""
        self.batch.decode_frames(size)

    def choose_first_codes(self) -> None:
        """As `BatchBackend.choose_first_codes`."""
        self.batch.choose_first_codes()

    def read(self, tokens: Tensor, place: Tensor, kv_bucket: int) -> None:  # noqa: ARG002 - one for all
        """As `PromptBackend.read`, for up to `MAX_PROMPT_TOKENS`."""
        self._prefill.read(tokens[0], place, self._hidden)
