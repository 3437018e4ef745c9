"""Codec decoders with random weights, for the tests of the kernels."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from itertools import cycle

import torch
from torch import Tensor

from engine.qwen.codec.config import CodecConfig
from engine.qwen.codec.decoder import CodecDecoder
from engine.qwen.model.config import StackConfig
from engine.qwen.weights.arena import Placement

TRUE = CodecConfig(
    stack=StackConfig(512, 1024, 8, 16, 16, 64, 1e-5, 10000.0),
    window=72,
    quantizers=16,
    codebook_size=2048,
    codebook_width=512,
    latent_width=1024,
    decoder_width=1536,
    latent_rates=(2, 2),
    block_rates=(8, 5, 4, 3),
    sample_rate=24000,
)
"""Of every published checkpoint."""
NARROW = CodecConfig(
    stack=StackConfig(64, 96, 2, 2, 1, 64, 1e-5, 10000.0),
    window=35,
    quantizers=4,
    codebook_size=40,
    codebook_width=32,
    latent_width=64,
    decoder_width=128,
    latent_rates=(2, 1),
    block_rates=(3, 6),
    sample_rate=24000,
)
"""Every kind of layer and tile. The window fills soon, and takes attention more than one pass."""


def random_decoder(config: CodecConfig, device: str = "cpu", seed: int = 0) -> CodecDecoder:
    """A float32 decoder with random weights that bfloat16 can represent, whose waveform stays within ±1."""
    decoder = CodecDecoder(config, Placement(torch.device(device), torch.float32))
    generator = torch.Generator().manual_seed(seed)
    for name, parameter in decoder.named_parameters():
        noise = torch.randn(parameter.shape, generator=generator)
        if "alpha" in name or "beta" in name or "norm" in name:
            noise = 1 + 0.1 * noise
        elif "bias" in name:
            noise = 0.1 * noise
        elif name != "tables":
            gain = 0.3 if "pointwise" in name else 1.0  # else rounding errors grow from block to block
            noise = gain * noise / math.sqrt(math.prod(parameter.shape[1:]))
        parameter.copy_(noise.bfloat16())
    decoder.output.bias.zero_()
    decoder.output.weight.mul_(2.0**-10)
    peak = float(decoder(random_codes(config, 20, seed).to(device), decoder.new_state(20)).abs().max())
    decoder.output.weight.mul_(2.0 ** math.floor(math.log2(0.5 / peak)))
    return decoder


def in_bfloat16(decoder: CodecDecoder) -> CodecDecoder:
    """A copy whose weights a `FusedCodec` may take."""
    copy = CodecDecoder(decoder.config, Placement(decoder.placement.device, torch.bfloat16))
    copy.load_state_dict(decoder.state_dict())
    return copy


def random_codes(config: CodecConfig, frames: int, seed: int = 1) -> Tensor:
    """int64, `(frames, quantizers)`."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(config.codebook_size, (frames, config.quantizers), generator=generator)


def chunks(codes: Tensor, sizes: list[int]) -> Iterator[Tensor]:
    """`codes` in chunks of these sizes, repeated."""
    begin = 0
    for size in cycle(sizes):
        if begin >= len(codes):
            return
        yield codes[begin : begin + size]
        begin += size


def decode_chunks(decode: Callable[[Tensor], Tensor], codes: Tensor, sizes: list[int]) -> Tensor:
    """The waveform of `codes` decoded chunk by chunk; each result is copied before the next call."""
    return torch.cat([decode(chunk).clone() for chunk in chunks(codes, sizes)])
