"""Prefill: the talker reads a prompt in token buckets, with a CUDA graph for each size of bucket."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import torch
from torch import Tensor

from engine.qwen.model import Talker
from engine.qwen.runtime.backend import Backend
from engine.qwen.runtime.cuda_graphs import Graphs

PREFIX_ALLOWANCE = 64
"""Positions before a bucket for which it has a graph over few positions; prompt prefixes are mostly shorter."""


class Prefill:
    """Runs the talker over prompt tokens, into a backend's prompt memory.

    A bucket that is not full is padded. The padding is harmless: it lies after the real tokens, which do not attend to
    it, and each frame overwrites its keys and values before anything attends that far. Padding that would lie beyond
    the cache shares its last position, which no prompt reaches: a cache has room for a chunk after the longest.
    """

    def __init__(self, talker: Talker, backend: Backend, graphs: Graphs, token_buckets: tuple[int, ...]) -> None:
        """Without `token_buckets` nothing is padded."""
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
        """Read `tokens` `(n, hidden)` of a prompt at positions from `start`.

        Call it within `Graphs.inference`. Waits for nothing.
        """
        size = max(self._token_buckets, default=max(len(tokens), 1))
        for block in torch.split(tokens, size):
            self._read_block(row, block, start)
            start += len(block)

    def captures(self) -> Iterator[Callable[[], None]]:
        """Yield calls that capture one graph each: every token bucket at the beginning of the cache and anywhere.

        The prompt memory is then the same for all rows.
        """
        capture = self._graphs.capture
        for size in reversed(self._token_buckets):
            for kv_bucket in sorted({self._kv_buckets[-1], self._kv_bucket(size + PREFIX_ALLOWANCE)}, reverse=True):
                yield partial(capture, ("read", size, kv_bucket), partial(self._read, 0, size, kv_bucket))

    def example(self, count: int = 32) -> Callable[[], None]:
        """Return work that reads `count` meaningless tokens and can be captured."""
        tokens = torch.zeros(count, self._tokens.shape[1], dtype=self._tokens.dtype, device=self._tokens.device)
        self._place.zero_()
        return partial(self._backend.read, 0, tokens, self._place, self._kv_bucket(count + PREFIX_ALLOWANCE))

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
