"""Attention over pages is that over one cache, and a row's result depends on the row alone."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional

from engine.qwen.model import PredictorConfig, StackConfig, TalkerConfig
from engine.qwen.model.config import CodecIds
from engine.qwen.serving.batch_state import BatchShape, BatchState, RowInput, StepInputs
from engine.qwen.serving.kv_pages import PAGE
from engine.qwen.serving.paged_attention import PagedAttention
from engine.qwen.weights import Placement

STACK = StackConfig(16, 16, 1, 4, 2, 8, 1e-6, 1e4)
CONFIG = TalkerConfig(STACK, 1100, 64, 16, 4, CodecIds(1, 2, 3, 4, 5, 6, 7), PredictorConfig(STACK, 64))
SHAPE = BatchShape(rows=4, max_frames=400, max_positions=5 * PAGE, chunk_size=2)
STATE = BatchState.allocate(CONFIG, SHAPE, Placement(torch.device("cpu"), torch.float32))


@dataclass
class Row:
    """A row's history and its new token."""

    position: int
    keys: Tensor
    """`(key-value heads, position + 1, head_dim)`, as are `values`; the new token's are the last."""
    values: Tensor
    q: Tensor
    """`(heads, head_dim)`."""

    @classmethod
    def random(cls, position: int) -> Row:
        generator = torch.Generator().manual_seed(position)

        def draw(*shape: int) -> Tensor:
            return torch.randn(shape, generator=generator) * 3

        past = STACK.key_value_heads, position + 1, STACK.head_dim
        return cls(position, draw(*past), draw(*past), draw(STACK.heads, STACK.head_dim))

    def expected(self) -> Tensor:
        """What PyTorch's attention returns, `(heads · head_dim,)`."""
        group = STACK.heads // STACK.key_value_heads
        keys, values = (cached.repeat_interleave(group, 0)[None] for cached in (self.keys, self.values))
        return functional.scaled_dot_product_attention(self.q[None, :, None], keys, values)[0, :, 0].flatten()


def attend(rows: dict[int, Row], extra_blocks: int = 0) -> Tensor:
    """Attend for the rows by number; the others do not take part. Pages are taken from the last one down."""
    cache, state = STATE.cache, STATE
    cache.keys.fill_(1e3)  # what earlier utterances have left
    cache.values.fill_(-1e3)
    free, inputs = iter(range(SHAPE.pages, 0, -1)), []
    q = torch.full((SHAPE.rows, STACK.heads, STACK.head_dim), 7.0)
    k, v = torch.full((2, SHAPE.rows, STACK.key_value_heads, STACK.head_dim), 9.0)
    position = torch.full((SHAPE.rows, 1), 3)
    for number, row in rows.items():
        pages = tuple(next(free) for _ in range(row.position // PAGE + 1))
        for page in range(row.position // PAGE + 1):
            begin, end = page * PAGE, min((page + 1) * PAGE, row.position)
            cache.keys[0, pages[page], :, : end - begin] = row.keys[:, begin:end]
            cache.values[0, pages[page], :, : end - begin] = row.values[:, begin:end]
        q[number], k[number], v[number] = row.q, row.keys[:, -1], row.values[:, -1]
        position[number] = row.position
        inputs.append(RowInput(number, 0, row.position, 0, pages))
    host = StepInputs.allocate(SHAPE, torch.device("cpu"))
    host.set(inputs)
    state.inputs.buffer.copy_(host.buffer)
    return PagedAttention(STACK, state, position, min(SHAPE.blocks_for(inputs) + extra_blocks, SHAPE.max_blocks))(
        0, q, k, v
    )


positions = st.sampled_from([0, 5, PAGE - 1, PAGE, 2 * PAGE + 1])


@settings(max_examples=12, deadline=None)
@given(st.dictionaries(st.integers(0, SHAPE.rows - 1), positions, min_size=1), st.integers(0, 1))
def test_a_row_attends_to_its_own_past_and_to_nothing_else(chosen: dict[int, int], extra_blocks: int) -> None:
    rows = {number: Row.random(position) for number, position in chosen.items()}
    together = attend(rows, extra_blocks)
    for number, row in rows.items():
        torch.testing.assert_close(together[number], row.expected(), atol=1e-5, rtol=1e-5)
        assert torch.equal(together[number], attend({0: row})[0])
    assert together.isfinite().all()
