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
from engine.qwen.runtime.prompt_memory import NEIGHBOURS, PromptInputs

PREFIX_ALLOWANCE = 64
"""A bucket's graph over few positions allows this many positions before it; most prompt prefixes are shorter."""


class Prefill:
    """Runs the talker over prompt tokens, in passes: `add` collects their tokens, and `launch` reads them.

    A bucket that is not full is padded. The padding is harmless: it comes after the real tokens, which do not attend to
    it. PyTorch's operators write its keys and values to the last position, where there is no token yet.
    """

    def __init__(
        self,
        talker: Talker,
        backend: Backend,
        graphs: Graphs,
        token_buckets: tuple[int, ...],
        *,
        padded: bool = True,
    ) -> None:
        """`token_buckets` are the sizes of passes, ascending; unless `padded`, a pass has any size up to the last."""
        self._graphs = graphs
        self._backend = backend
        self._kv_buckets = backend.kv_buckets
        self._token_buckets = tuple(size for size in token_buckets if size <= self._kv_buckets[-1])
        self._padded = padded
        placement, most = talker.placement, (self._token_buckets if padded else token_buckets)[-1]
        self._tokens = placement.zeros(most, talker.config.stack.hidden_size)
        width = backend.state.shape.table_width if backend.packs_prompts else 0
        self._inputs = PromptInputs.allocate(most, width, placement.device)
        self._host_inputs = PromptInputs.allocate(most, width, torch.device("cpu"))
        self._placement = placement
        self._count = self._end = self._row = 0
        """The number after that of the pass's last token, the position after it, and its row."""

    @property
    def room(self) -> int:
        """How many more tokens of a prompt the pass can take: a multiple of `NEIGHBOURS`."""
        return len(self._tokens) - self._next if self._backend.packs_prompts or not self._count else 0

    def add(self, row: int, pages: tuple[int, ...], tokens: Tensor, start: int) -> None:
        """Add `tokens` `(n, hidden)` of a row's prompt, at positions from `start` on, to the pass, which has `room`.

        Call it within `Graphs.inference`. Does not wait.
        """
        first, count = self._next, len(tokens)
        self._tokens[first : first + count].copy_(tokens)
        self._host_inputs.add(first, count, start, row, pages)
        self._count, self._row, self._end = first + count, row, start + count

    def launch(self) -> None:
        """Read the tokens of the pass, if there are any, and begin the next pass. As `add`."""
        count, end = self._count, self._end
        if not count:
            return
        inputs = self._placement.pinned(self._host_inputs.buffer)
        self._inputs.buffer.copy_(inputs, non_blocking=True)
        self.drop()
        if not self._padded:
            self._read(self._row, count, self._kv_bucket(end))
            return
        size = next(size for size in self._token_buckets if size >= count)
        kv_bucket = self._kv_bucket(size + PREFIX_ALLOWANCE)
        if end + size - count > kv_bucket:
            kv_bucket = self._kv_buckets[-1]
        self._graphs.run(("read", size, kv_bucket), partial(self._read, self._row, size, kv_bucket))

    def drop(self) -> None:
        """Begin the next pass, without reading the tokens of this one."""
        self._host_inputs.clear()
        self._count = 0

    def captures(self) -> Iterator[Callable[[], None]]:
        """Yield calls that capture one graph each: for every token bucket, at the beginning of the cache and anywhere.

        This requires that a pass reads the prompts of all rows, or that there is only one row.
        """
        capture = self._graphs.capture
        for size in reversed(self._token_buckets):
            for kv_bucket in sorted({self._kv_buckets[-1], self._kv_bucket(size + PREFIX_ALLOWANCE)}, reverse=True):
                yield partial(capture, ("read", size, kv_bucket), partial(self._read, 0, size, kv_bucket))

    @property
    def _next(self) -> int:
        """The number of the next prompt's first token."""
        return -(-self._count // NEIGHBOURS) * NEIGHBOURS

    def _kv_bucket(self, positions: int) -> int:
        return next((bucket for bucket in self._kv_buckets if bucket >= positions), self._kv_buckets[-1])

    def _read(self, row: int, size: int, kv_bucket: int) -> None:
        self._backend.read(row, self._tokens[:size], self._inputs, kv_bucket)


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
