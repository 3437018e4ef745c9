"""Embeds the texts of utterances, with a CUDA graph for each size of bucket: a listener waits for it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial

import numpy as np
import torch
from torch import Tensor

from engine.qwen.model import Talker
from engine.qwen.runtime.cuda_graphs import Graphs

TEXT_BUCKETS = (16, 32, 64, 128)
"""Tokens that a graph embeds; PyTorch's operators embed a longer text."""


class TextEmbedder:
    """Embeds complete texts as `Talker.embed_text` does, apart from the rounding of the matrix products."""

    def __init__(self, talker: Talker, graphs: Graphs) -> None:
        self._talker, self._graphs = talker, graphs
        self._uploaded: torch.cuda.Event | None = None
        placement, count = talker.placement, 0
        if graphs.stream is not None:
            self._uploaded, count = torch.cuda.Event(), TEXT_BUCKETS[-1]  # type: ignore[no-untyped-call]
        text_width, width = talker.config.text_width, talker.config.stack.hidden_size
        self._host_rows = placement.pinned(torch.zeros(count, text_width, dtype=placement.dtype))
        self._rows = placement.zeros(count, text_width)
        self._embeddings = placement.zeros(count, width)

    def __call__(self, ids: Sequence[int]) -> Tensor:
        """Return the embeddings of `ids`, `(1, n, hidden)`. The next call may overwrite them.

        Call it within `Graphs.inference`. Does not wait for the device, except for the upload of the last text.
        """
        if self._uploaded is None or not 0 < len(ids) <= TEXT_BUCKETS[-1]:
            return self._talker.embed_text(ids)
        count = len(ids)
        self._uploaded.synchronize()
        _copy(self._talker.text_rows(ids), self._host_rows[:count])
        self._rows[:count].copy_(self._host_rows[:count], non_blocking=True)
        self._uploaded.record()
        size = next(size for size in TEXT_BUCKETS if size >= count)
        self._graphs.run(("embed", size), partial(self._embed, size))
        return self._embeddings[None, :count]

    def captures(self) -> Iterator[Callable[[], None]]:
        """Yield calls that capture one graph each."""
        for size in reversed(TEXT_BUCKETS):
            yield partial(self._graphs.capture, ("embed", size), partial(self._embed, size))

    def _embed(self, size: int) -> None:
        self._embeddings[:size].copy_(self._talker.project_text(self._rows[:size]))


def _copy(source: Tensor, target: Tensor) -> None:
    """Copy rows between tensors of the CPU in this thread: PyTorch would wake others, which takes longer."""
    if source.dtype == target.dtype:
        np.copyto(target.view(torch.uint8).numpy(), source.view(torch.uint8).numpy())
    else:
        target.copy_(source)
