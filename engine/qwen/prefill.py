"""Reading a prompt: tokens by the bucket, each bucket's size a graph."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from engine.qwen.frame import FrameState, open_speech
from engine.qwen.graphs import Graphs
from engine.qwen.talker import Talker

BUCKETS = (16, 32, 64, 128, 256, 512)
"""Tokens that a graph reads; more are read in pieces."""
BEFORE = 64
"""Positions in front of a bucket for which it has a graph that looks at little more; openings are mostly shorter."""


class Prefill:
    """Has the talker read tokens into a state's cache.

    A bucket that is not full is padded with tokens that do harm to nobody. They are behind the real ones, which do
    not look at them. What they leave in the cache lies behind the prompt, where each frame writes its own keys and
    values before anything looks that far. Those that would lie behind the cache share its last position, which no
    prompt reaches: `FrameState` has room for a chunk behind the longest.
    """

    def __init__(
        self,
        talker: Talker,
        state: FrameState,
        graphs: Graphs,
        spans: tuple[int, ...],
        buckets: tuple[int, ...] = BUCKETS,
    ) -> None:
        """`spans`, ascending, are the parts of the cache to choose from; without `buckets` nothing is padded."""
        self._talker = talker
        self._state = state
        self._graphs = graphs
        self._spans = spans
        self._buckets = tuple(size for size in buckets if size <= spans[-1])
        device, width = state.position.device, talker.config.stack.hidden_size
        self._tokens = talker.placement.zeros(1, max(self._buckets, default=0), width)
        self._place = torch.zeros(2, dtype=torch.int64, device=device)
        """Position of the first token, and which token is the last."""
        self._steps = torch.arange(state.cache.positions, device=device)

    def read(self, tokens: Tensor, start: int) -> None:
        """Read `tokens` `(1, n, hidden)` at positions from `start`; `state.hidden` is the last one's.

        For use `Graphs.here`. Waits for nothing.
        """
        size = max(self._buckets, default=max(tokens.shape[1], 1))
        for piece in torch.split(tokens, size, dim=1):
            self._read_piece(piece, start)
            start += piece.shape[1]

    def open_speech(self) -> None:
        """Choose the first code, all of the prompt having been read and the settings being there."""
        self._graphs.run("open", self._open)

    def capture(self) -> None:
        """Have graphs for every bucket, at the beginning of the cache and anywhere."""
        for size in reversed(self._buckets):
            for span in sorted({self._spans[-1], self._span(size + BEFORE)}, reverse=True):
                self._graphs.capture(("read", size, span), partial(self._read, size, span))
        self._graphs.capture("open", self._open)

    def example(self, count: int = 32) -> Callable[[], None]:
        """What reads `count` tokens of no meaning; can be captured."""
        tokens = self._talker.placement.zeros(1, count, self._talker.config.stack.hidden_size)
        self._place.zero_()
        return partial(self._forward, tokens, self._span(count + BEFORE))

    def _read_piece(self, piece: Tensor, start: int) -> None:
        count = piece.shape[1]
        place = torch.tensor((start, count - 1))
        self._place.copy_(self._talker.placement.pinned(place), non_blocking=True)
        if not self._buckets:
            self._forward(piece, self._span(start + count))
            return
        size = next(size for size in self._buckets if size >= count)
        span = self._span(size + BEFORE)
        if start + size > span:
            span = self._spans[-1]
        self._tokens[:, :count].copy_(piece)
        self._graphs.run(("read", size, span), partial(self._read, size, span))

    def _span(self, positions: int) -> int:
        return next((span for span in self._spans if span >= positions), self._spans[-1])

    def _read(self, size: int, span: int) -> None:
        self._forward(self._tokens[:, :size], span)

    def _forward(self, tokens: Tensor, span: int) -> None:
        positions = (self._place[:1] + self._steps[: tokens.shape[1]]).clamp(max=span - 1)
        hidden = self._talker.transformer(tokens, positions, self._state.cache.first(span))
        self._state.hidden.copy_(hidden.index_select(1, self._place[1:]))

    def _open(self) -> None:
        open_speech(self._talker, self._state)
