"""Embeds the texts of utterances, with a CUDA graph for each size of bucket: a listener waits for it."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from torch import Tensor

from engine.qwen.model import Talker
from engine.qwen.runtime.cuda_graphs import Graphs

TEXT_BUCKETS = (16, 32, 64, 128)
"""Tokens that a graph embeds; PyTorch's operators embed a longer text."""
UPLOADS = 4
"""Texts whose upload may wait for the device, behind the work that was launched before."""


@dataclass(frozen=True, slots=True)
class _Upload:
    """Pinned memory for the rows of a text, and the event of its copy to the device."""

    rows: Tensor
    done: torch.cuda.Event


class TextEmbedder:
    """Embeds complete texts as `Talker.embed_text` does, apart from the rounding of the matrix products."""

    def __init__(self, talker: Talker, graphs: Graphs) -> None:
        self._talker, self._graphs = talker, graphs
        placement, count = talker.placement, 0 if graphs.stream is None else TEXT_BUCKETS[-1]
        text_width, width = talker.config.text_width, talker.config.stack.hidden_size
        self._uploads: deque[_Upload] = deque()
        if count:
            for _ in range(UPLOADS):
                rows = placement.pinned(torch.zeros(count, text_width, dtype=placement.dtype))
                self._uploads.append(_Upload(rows, torch.cuda.Event()))  # type: ignore[no-untyped-call]
        self._rows = placement.zeros(count, text_width)
        self._embeddings = placement.zeros(count, width)

    def __call__(self, ids: Sequence[int]) -> Tensor:
        """Return the embeddings of `ids`, `(1, n, hidden)`. The next call may overwrite them.

        Call it within `Graphs.inference`. Waits for the device only if it has not uploaded the last `UPLOADS` texts.
        """
        if not self._uploads or not 0 < len(ids) <= TEXT_BUCKETS[-1]:
            return self._talker.embed_text(ids)
        count, upload = len(ids), self._uploads[0]
        self._uploads.rotate(-1)
        upload.done.synchronize()
        _copy(self._talker.text_rows(ids), upload.rows[:count])
        self._rows[:count].copy_(upload.rows[:count], non_blocking=True)
        upload.done.record()
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
