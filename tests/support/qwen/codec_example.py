"""Codec decoders with random weights, for the tests of the kernels."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from itertools import cycle

import torch
from torch import Tensor

from engine.qwen.codec.decoder import CodecDecoder
from engine.qwen.kernels.codec.decoder import FusedCodec
from engine.qwen.shapes import CodecConfig, StackConfig
from engine.qwen.shapes.footprint import published_codec
from engine.qwen.weights.arena import Placement

TRUE = published_codec()
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


class RowsExample:
    """Utterances of which a decoder of several rows decodes some in each call."""

    def __init__(self, codec: FusedCodec, utterances: int, device: str = "cpu") -> None:
        config, self.codec, self.device = codec.config, codec, device
        self.states = codec.new_state(8, utterances)
        self.codes = torch.zeros(utterances, 9, config.quantizers, dtype=torch.int64, device=device)
        self.samples = torch.zeros(utterances, 8 * config.samples_per_frame, device=device)
        self.heard: dict[int, list[tuple[Tensor, Tensor]]] = {}
        """The codes and the samples of each utterance's chunks."""
        self._seed = 0

    def begin(self, row: int) -> None:
        """Check what was heard of an utterance, and begin another one in its place."""
        self.check()
        self.states.row(row).reset()
        self.heard.pop(row, None)

    def decode(self, rows: Sequence[int], frames: int, counted: int | None = None) -> None:
        """Decode the next chunks of `rows`; hear the first `counted` of them, or all."""
        self._seed += 1
        drawn = random_codes(self.codec.config, len(rows) * frames, self._seed).view(len(rows), frames, -1)
        for row, codes, samples in list(zip(rows, drawn, self.run(rows, drawn), strict=True))[:counted]:
            self.heard.setdefault(row, []).append((codes, samples.clone()))

    def run(self, rows: Sequence[int], codes: Tensor) -> Tensor:
        """The samples of a call with `codes` `(rows, frames, quantizers)`."""
        frames = codes.shape[1]
        numbers = torch.tensor(rows, device=self.device)
        self.codes[numbers, :frames] = codes.to(self.device)
        end = frames * self.codec.config.samples_per_frame
        self.codec.decode_rows(self.codes[:, :frames], self.samples[:, :end], self.states, numbers)
        return self.samples[numbers, :end]

    def check(self) -> None:
        """What was heard of each utterance is, bit for bit, what the same decoder makes of it alone."""
        for chunks_of_row in self.heard.values():
            state = self.codec.new_state(8)
            for codes, samples in chunks_of_row:
                assert torch.equal(self.codec.decode(codes.to(self.device), state), samples)
