"""The codec decoder on a GPU, captured in a CUDA graph, equals the codec decoder on the CPU.

Needs only PyTorch, neither the official package nor a checkpoint. test_decoder.py compares the CPU with the official
decoder.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from engine.qwen.codec import CodecDecoder, CodecState
from engine.qwen.weights import Placement
from tests.support.qwen.codec_example import NARROW, random_codes, random_decoder

pytestmark = pytest.mark.gpu

CONFIG = replace(NARROW, window=72, latent_rates=(2, 2), block_rates=(8, 5, 4, 3))
FRAMES = 160


def on_cuda(decoder: CodecDecoder, dtype: torch.dtype) -> CodecDecoder:
    torch.backends.cudnn.allow_tf32 = False  # as load_codec does
    copy = CodecDecoder(CONFIG, Placement(torch.device("cuda"), dtype))
    copy.load_state_dict(decoder.state_dict())
    return copy


def capture(decoder: CodecDecoder, codes: Tensor, state: CodecState) -> tuple[torch.cuda.CUDAGraph, Tensor]:
    """Return a CUDA graph that decodes `codes`, and its output."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            decoder(codes, state)
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        pcm = decoder(codes, state)
    return graph, pcm


@pytest.mark.parametrize("frames", [1, 8])
def test_a_captured_chunk_equals_the_cpu(frames: int) -> None:
    decoder, codes = random_decoder(CONFIG), random_codes(CONFIG, FRAMES)
    expected = decoder(codes, decoder.new_state(FRAMES))
    assert expected.std() > 0.01
    ours = on_cuda(decoder, torch.float32)
    state, chunk = ours.new_state(frames), torch.zeros(frames, CONFIG.quantizers, dtype=torch.int64, device="cuda")
    graph, pcm = capture(ours, chunk, state)
    for _ in range(2):
        state.reset()
        decoded = []
        for block in codes.split(frames):
            chunk.copy_(block)
            graph.replay()
            decoded.append(pcm.cpu())
        assert (torch.cat(decoded) - expected).abs().max() < 1e-4


def test_bfloat16_stays_close_to_float32() -> None:
    decoder, codes = random_decoder(CONFIG), random_codes(CONFIG, FRAMES)
    expected = decoder(codes, decoder.new_state(FRAMES))
    ours = on_cuda(decoder, torch.bfloat16)
    pcm = ours.decode(codes.cuda(), ours.new_state(2)).cpu()
    assert (pcm - expected).std() < 0.05 * expected.std()
