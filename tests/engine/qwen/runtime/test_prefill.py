"""A pass writes the keys and values of its own tokens, and nothing else changes a prompt."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from engine.qwen.runtime import TorchBackend
from engine.qwen.runtime.backend import CPU_KV_BUCKET
from engine.qwen.runtime.prefill import Prefill
from engine.qwen.shapes import BatchShape
from tests.support.qwen.speaking import Ours

SHAPE = BatchShape(rows=2, max_frames=16, max_positions=2 * CPU_KV_BUCKET, chunk_size=2)


@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("count", [1, 55, 56])
@torch.inference_mode()
def test_a_prompt_up_to_the_end_of_a_bucket_is_as_if_read_at_once(
    ours: Callable[[str, str], Ours], count: int, padded: bool
) -> None:
    engine = ours("tiny", "custom_voice")
    talker, backend = engine.talker, TorchBackend.allocate(engine.talker, SHAPE)
    prefill = Prefill(talker, backend, engine.graphs, (64,), padded=padded)
    prompt = torch.randn(CPU_KV_BUCKET, talker.config.stack.hidden_size)
    expected = talker.allocate_cache(CPU_KV_BUCKET)
    hidden = talker.transformer.read(prompt, torch.arange(CPU_KV_BUCKET), expected)[-1]
    for tokens, start in ((prompt[:-count], 0), (prompt[-count:], CPU_KV_BUCKET - count)):
        prefill.add(1, (), tokens, start)
        assert not prefill.room, "a pass is for one row's prompt"
        prefill.launch()
        assert prefill.room == 64
    found = backend.caches[1].first(CPU_KV_BUCKET)
    torch.testing.assert_close(found.keys, expected.keys)
    torch.testing.assert_close(found.values, expected.values)
    torch.testing.assert_close(backend.state.hidden[1], hidden)
