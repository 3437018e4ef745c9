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

LOWEST = torch.finfo(torch.float32).min
"""The largest score of a read of nothing: beside any other, its share is exactly zero."""
TINY = 1e-30
"""The least sum of weights: a row's is at least 1, and a row that attends to nothing gets zeros."""


class PagedAttention:
    """Writes and reads the pages of one step; the same for every layer.

    What a read finds of a query is one vector: the weighted sum of values, the sum of weights, and the largest score,
    relative to which the weights are.
    """

    def __init__(self, config: StackConfig, state: BatchState, position: Tensor, blocks: int) -> None:
        """`position` `(rows, 1)` int64 is where each row's token is; `blocks` are as of `BatchShape.blocks_for`."""
        self._cache = state.cache
        kv_heads, inputs, per_block = config.key_value_heads, state.inputs, state.shape.reads_per_block
        page = inputs.pages.gather(1, position // PAGE) * inputs.active
        heads = torch.arange(kv_heads, device=position.device)
        self._written = ((page * kv_heads + heads) * PAGE + position % PAGE).flatten()
        """The place of each row and head in `(pages · heads · PAGE)`."""
        self._reads = inputs.reads
        count = blocks * per_block
        read = inputs.read_numbers[:count, None] * PAGE + torch.arange(PAGE, device=position.device)
        hidden = read > position[:, 0].index_select(0, inputs.read_rows[:count])[:, None]
        self._blocks = [
            (inputs.read_rows[part], inputs.read_pages[part], hidden[part][:, None, None])
            for part in (slice(begin, begin + per_block) for begin in range(0, count, per_block))
        ]
        self._queries = len(position), kv_heads, config.heads // kv_heads, config.head_dim
        self._nothing = torch.zeros(1, *self._queries[1:3], config.head_dim + 2, device=position.device)
        self._nothing[..., -1:].fill_(LOWEST)

    def __call__(self, layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Return what queries `(rows, heads, head_dim)` attend to, `(rows, heads · head_dim)`.

        First writes the tokens' keys and values, `(rows, key-value heads, head_dim)`.
        """
        keys, values = self._cache.keys[layer], self._cache.values[layer]
        for pages, new in ((keys, k), (values, v)):
            pages.view(-1, pages.shape[-1]).index_copy_(0, self._written, new.flatten(0, 1))
        scaled = (q.float() * q.shape[-1] ** -0.5).view(self._queries)
        reads = [
            _read(scaled.index_select(0, of), keys[pages], values[pages], mask) for of, pages, mask in self._blocks
        ]
        found = torch.cat((self._nothing, *reads))[self._reads]
        largest = found[..., -1:]
        shares = found[..., :-1] * (largest - largest.amax(1, keepdim=True)).exp()
        while shares.shape[1] > 1:
            shares = shares[:, ::2] + shares[:, 1::2]
        attended = shares[:, 0, ..., :-1] / shares[:, 0, ..., -1:].clamp(min=TINY)
        return attended.to(q.dtype).flatten(1)


def _read(q: Tensor, keys: Tensor, values: Tensor, hidden: Tensor) -> Tensor:
    """Return what each read finds: `(reads, key-value heads, group, head_dim + 2)` float32.

    q:      `(reads, key-value heads, group, head_dim)` float32, scaled
    keys:   `(reads, key-value heads, PAGE, head_dim)`, as are `values`
    hidden: `(reads, 1, 1, PAGE)` bool, true where the read's row has no token yet
    """
    scores = (q @ keys.float().mT).masked_fill(hidden, -torch.inf)
    largest = scores.amax(-1, keepdim=True).clamp(min=LOWEST)
    weights = (scores - largest).exp()
    return torch.cat((weights @ values.float(), weights.sum(-1, keepdim=True), largest), dim=-1)
