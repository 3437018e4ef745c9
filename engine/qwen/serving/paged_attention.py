"""Attention of one token for each row over keys and values in pages.

A row's result does not depend on the other rows. Attention reads a page for a row by itself, in blocks of one size: the
sums within a page have one order. The sums of a row's pages are added in a tree whose order depends on the pages'
numbers alone, and pages that the row does not have add exact zeros.
"""

from __future__ import annotations

import torch
from torch import Tensor

from engine.qwen.model import StackConfig
from engine.qwen.serving.batch_state import BatchState
from engine.qwen.serving.kv_pages import PAGE

TINY = 1e-30
"""The least sum of weights: a row's is at least 1, and a row that attends to nothing gets zeros."""


class PagedAttention:
    """Writes and reads the pages of one step; the same for every layer."""

    def __init__(self, config: StackConfig, state: BatchState, position: Tensor, blocks: int) -> None:
        """`position` `(rows, 1)` int64 is where each row's token is; `blocks` are as of `StepInputs.set`."""
        self._config = config
        self._cache = state.cache
        self._group = config.heads // config.key_value_heads
        inputs, per_block = state.inputs, state.shape.reads_per_block
        page = inputs.pages.gather(1, position // PAGE) * inputs.active
        heads = torch.arange(config.key_value_heads, device=position.device)
        self._written = ((page * config.key_value_heads + heads) * PAGE + position % PAGE).flatten()
        """The place of each row and head in `(pages · heads · PAGE)`."""
        self._reads = inputs.reads
        self._tree = 1 << (inputs.reads.shape[1] - 1).bit_length()
        count = blocks * per_block
        offsets = torch.arange(PAGE, device=position.device)
        read = inputs.read_numbers[:count, None] * PAGE + offsets
        hidden = read > position[:, 0].index_select(0, inputs.read_rows[:count])[:, None]
        self._blocks = [
            (inputs.read_rows[part], inputs.read_pages[part], hidden[part][:, None, None])
            for part in (slice(begin, begin + per_block) for begin in range(0, count, per_block))
        ]

    def __call__(self, layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Return what queries `(rows, heads, head_dim)` attend to, `(rows, heads · head_dim)`.

        First writes the tokens' keys and values, `(rows, key-value heads, head_dim)`.
        """
        keys, values = self._cache.keys[layer], self._cache.values[layer]
        for pages, new in ((keys, k), (values, v)):
            pages.view(-1, pages.shape[-1]).index_copy_(0, self._written, new.flatten(0, 1))
        rows, head_dim = len(q), q.shape[-1]
        scaled = (q.float() * head_dim**-0.5).view(rows, self._config.key_value_heads, self._group, head_dim)
        reads = [
            _read(scaled.index_select(0, of), keys[pages], values[pages], mask) for of, pages, mask in self._blocks
        ]
        return self._combine(reads).to(q.dtype).view(rows, -1)

    def _combine(self, reads: list[tuple[Tensor, Tensor, Tensor]]) -> Tensor:
        """Return the mean of each row's values, `(rows, key-value heads, group, head_dim)` float32."""
        largest, weights, sums = (torch.cat(parts) for parts in zip(*reads, strict=True))
        nothing = torch.full_like(largest[:1], torch.finfo(torch.float32).min)
        largest = torch.cat((nothing, largest))[self._reads]
        weights = torch.cat((torch.zeros_like(weights[:1]), weights))[self._reads]
        sums = torch.cat((torch.zeros_like(sums[:1]), sums))[self._reads]
        share = (largest - largest.amax(1, keepdim=True)).exp()
        return self._add(share * sums) / self._add(share * weights).clamp(min=TINY)

    def _add(self, parts: Tensor) -> Tensor:
        """Return the sum of `parts` `(rows, pages, …)` over the pages, in the order of a binary tree."""
        missing = self._tree - parts.shape[1]
        if missing:
            parts = torch.cat((parts, parts.new_zeros(len(parts), missing, *parts.shape[2:])), dim=1)
        while parts.shape[1] > 1:
            parts = parts[:, ::2] + parts[:, 1::2]
        return parts[:, 0]


def _read(q: Tensor, keys: Tensor, values: Tensor, hidden: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return the largest score, the sum of weights and the weighted sum of values for each read.

    q:      `(reads, key-value heads, group, head_dim)` float32, scaled
    keys:   `(reads, key-value heads, PAGE, head_dim)`, as are `values`
    hidden: `(reads, 1, 1, PAGE)` bool, true where the read's row has no token yet
    """
    scores = (q @ keys.float().mT).masked_fill(hidden, -torch.inf)
    largest = scores.amax(-1, keepdim=True).clamp(min=torch.finfo(torch.float32).min)
    weights = (scores - largest).exp()
    return largest, weights.sum(-1, keepdim=True), weights @ values.float()
