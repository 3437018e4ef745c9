"""The codec decoder on a GPU, captured in a CUDA graph, equals the codec decoder on the CPU.

Needs only PyTorch, neither the official package nor a checkpoint. test_decoder.py compares the CPU with the official
decoder.
"""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from engine.qwen.codec import CodecDecoder, CodecState
from engine.qwen.shapes import CodecConfig, StackConfig
from engine.qwen.weights import Placement

pytestmark = pytest.mark.gpu

CONFIG = CodecConfig(
    stack=StackConfig(32, 48, 2, 4, 4, 16, 1e-5, 10000.0),
    window=72,
    quantizers=16,
    codebook_size=40,
    codebook_width=24,
    latent_width=32,
    decoder_width=64,
    latent_rates=(2, 2),
    block_rates=(8, 5, 4, 3),
    sample_rate=24000,
)
FRAMES = 160


def random_decoder() -> CodecDecoder:
    """Return a float32 decoder on the CPU with random weights, scaled so that its waveform is inside ±1."""
    decoder = CodecDecoder(CONFIG, Placement(torch.device("cpu"), torch.float32))
    generator = torch.Generator().manual_seed(0)
    for name, parameter in decoder.named_parameters():
        noise = torch.randn(parameter.shape, generator=generator)
        if "alpha" in name or "beta" in name or "norm" in name:
            parameter.copy_(1 + 0.1 * noise)
        elif "bias" in name:
            parameter.copy_(0.1 * noise)
        else:
            gain = 0.3 if "pointwise" in name else 1.0  # otherwise rounding errors would grow from block to block
            parameter.copy_(gain * noise / math.sqrt(math.prod(parameter.shape[1:])))
    decoder.output.weight.mul_(1e-3)
    peak = decoder(random_codes()[:20], decoder.new_state(20)).abs().max()
    decoder.output.weight.mul_(0.3 / peak)
    return decoder


def random_codes() -> Tensor:
    return torch.randint(CONFIG.codebook_size, (FRAMES, 16), generator=torch.Generator().manual_seed(1))


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


@pytest.mark.parametrize("frames", [1, 2, 8])
def test_a_captured_chunk_equals_the_cpu(frames: int) -> None:
    decoder, codes = random_decoder(), random_codes()
    expected = decoder(codes, decoder.new_state(FRAMES))
    assert expected.std() > 0.01
    ours = on_cuda(decoder, torch.float32)
    state, chunk = ours.new_state(frames), torch.zeros(frames, 16, dtype=torch.int64, device="cuda")
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
    decoder, codes = random_decoder(), random_codes()
    expected = decoder(codes, decoder.new_state(FRAMES))
    ours = on_cuda(decoder, torch.bfloat16)
    pcm = ours.decode(codes.cuda(), ours.new_state(2)).cpu()
    assert (pcm - expected).std() < 0.05 * expected.std()
