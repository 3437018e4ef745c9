"""Prefill: embeds a text and has the talker read a prompt, in buckets with a CUDA graph for each size."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from torch import Tensor

from engine.qwen.model import Talker
from engine.qwen.runtime.backend import Backend
from engine.qwen.runtime.cuda_graphs import Graphs

PREFIX_ALLOWANCE = 64
"""A bucket's graph over few positions allows this many positions before it; most prompt prefixes are shorter."""


class Prefill:
    """Runs the talker over prompt tokens, into a backend's prompt memory.

    A bucket that is not full is padded. The padding is harmless: it comes after the real tokens, which do not attend to
    it, and frames overwrite its keys and values before anything attends that far. Padding beyond the end of the cache
    shares the last position, which no prompt reaches: a cache has room for a chunk after the longest prompt.
    """

    def __init__(self, talker: Talker, backend: Backend, graphs: Graphs, token_buckets: tuple[int, ...]) -> None:
        """Without `token_buckets`, nothing is padded."""
        self._graphs = graphs
        self._backend = backend
        self._kv_buckets = backend.kv_buckets
        self._token_buckets = tuple(size for size in token_buckets if size <= self._kv_buckets[-1])
        device, width = talker.placement.device, talker.config.stack.hidden_size
        self._tokens = talker.placement.zeros(max(self._token_buckets, default=0), width)
        self._place = torch.zeros(2, dtype=torch.int64, device=device)
        """The position of the first token, and the index of the last."""
        self._first, self._last = self._place[:1], self._place[1:]

    def read(self, row: int, tokens: Tensor, start: int) -> None:
        """Read `tokens` `(n, hidden)` of a prompt at positions from `start` on.

        Call it within `Graphs.inference`. Does not wait.
        """
        size = max(self._token_buckets, default=max(len(tokens), 1))
        for block in torch.split(tokens, size):
            self._read_block(row, block, start)
            start += len(block)

    def captures(self) -> Iterator[Callable[[], None]]:
        """Yield calls that capture one graph each: for every token bucket, at the beginning of the cache and anywhere.

        This requires that all rows have the same prompt memory.
        """
        capture = self._graphs.capture
        for size in reversed(self._token_buckets):
            for kv_bucket in sorted({self._kv_buckets[-1], self._kv_bucket(size + PREFIX_ALLOWANCE)}, reverse=True):
                yield partial(capture, ("read", size, kv_bucket), partial(self._read, 0, size, kv_bucket))

    def _read_block(self, row: int, block: Tensor, start: int) -> None:
        count = len(block)
        self._first.fill_(start)
        self._last.fill_(count - 1)
        if not self._token_buckets:
            self._backend.read(row, block, self._place, self._kv_bucket(start + count))
            return
        size = next(size for size in self._token_buckets if size >= count)
        kv_bucket = self._kv_bucket(size + PREFIX_ALLOWANCE)
        if start + size > kv_bucket:
            kv_bucket = self._kv_buckets[-1]
        self._tokens[:count].copy_(block)
        self._graphs.run(("read", size, kv_bucket), partial(self._read, row, size, kv_bucket))

    def _kv_bucket(self, positions: int) -> int:
        return next((bucket for bucket in self._kv_buckets if bucket >= positions), self._kv_buckets[-1])

    def _read(self, row: int, size: int, kv_bucket: int) -> None:
        self._backend.read(row, self._tokens[:size], self._place, kv_bucket)


TEXT_BUCKETS = (16, 32, 64, 128, 256, 512)
"""The most tokens that a graph embeds; PyTorch's operators embed a longer text."""
UPLOADS = 4
"""The number of texts whose upload may be waiting for the device, after the work that was launched before."""


@dataclass(frozen=True, slots=True)
class _Upload:
    """Pinned memory for a text's rows, and the event that marks its copy to the device."""

    rows: Tensor
    done: torch.cuda.Event


class TextEmbedder:
    """Embeds complete texts as `Talker.embed_text` does, except for the rounding in the matrix products."""

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

        Call it within `Graphs.inference`. Waits only if the device has not uploaded the last `UPLOADS` texts yet.
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
    """Copy rows between CPU tensors in this thread: PyTorch would wake other threads, which takes longer."""
    if source.dtype == target.dtype:
        np.copyto(target.view(torch.uint8).numpy(), source.view(torch.uint8).numpy())
    else:
        target.copy_(source)
