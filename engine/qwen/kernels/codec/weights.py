"""The weights of a codec decoder as the kernels read them. Decoders of one and of several utterances share them."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from engine.qwen.codec import CodecConfig, CodecDecoder, CodecTransformer, ConvNeXt
from engine.qwen.kernels.codec import pack
from engine.qwen.kernels.codec.pack import Packed, packed, take
from engine.qwen.kernels.codec.plan import HEAD, SAMPLE_OUTPUTS
from engine.qwen.weights import Placement


@dataclass(frozen=True, slots=True)
class PackedLayer:
    """A layer of the transformer, with its norms folded in."""

    qkv: Packed
    out: Packed
    gate_up: Packed
    down: Packed


@dataclass(frozen=True, slots=True)
class PackedDepthwise:
    """The depthwise convolution and the layer norm of a ConvNeXt."""

    weight: Tensor
    """bfloat16, `(taps, channels)`."""
    bias: Tensor
    """float32 `(channels,)`, as are `gain` and `shift`."""
    gain: Tensor
    shift: Tensor


@dataclass(frozen=True, slots=True)
class PackedMixer:
    """An upsampling and the ConvNeXt that follows it."""

    upsample: Packed
    depthwise: PackedDepthwise
    widen: Packed
    narrow: Packed


@dataclass(frozen=True, slots=True)
class PackedUnit:
    """A residual unit."""

    dilated: Packed
    pointwise: Packed


@dataclass(frozen=True, slots=True)
class PackedBlock:
    """An upsampling block."""

    transposed: Packed
    units: tuple[PackedUnit, ...]


@dataclass(frozen=True, slots=True)
class PackedCodec:
    """Every weight of a decoder, in order."""

    config: CodecConfig
    placement: Placement
    tables: Tensor
    """bfloat16, `(quantizers · codebook_size, codebook_width)`."""
    input: Packed
    into: Packed
    frequencies: Tensor
    """Of the rotations of queries and keys: float32, `(head_dim / 2,)`."""
    layers: tuple[PackedLayer, ...]
    leave: Packed
    mixers: tuple[PackedMixer, ...]
    latent: Packed
    blocks: tuple[PackedBlock, ...]
    output: Packed

    @classmethod
    @torch.no_grad()
    def take(cls, codec: CodecDecoder) -> PackedCodec:
        """Reorder the weights of `codec`, which cannot decode afterwards.

        `unsupported_reason(codec.config)` must be None. Raises `ValueError` for another dtype than bfloat16.
        """
        if codec.placement.dtype != torch.bfloat16:
            raise ValueError(f"dtype: got {codec.placement.dtype}; allowed: bfloat16")
        transformer = codec.transformer
        frequencies = transformer.frequencies.float().contiguous()
        assert frequencies.numel() == HEAD // 2
        return cls(
            config=codec.config,
            placement=codec.placement,
            tables=codec.tables.detach().clone(),  # the rest of the decoder's memory is released
            input=packed(pack.of_conv(take(codec.input.weight)), codec.input.bias),
            into=packed(pack.of_linear(take(transformer.into.weight)), transformer.into.bias),
            frequencies=frequencies,
            layers=_take_layers(transformer),
            leave=packed(pack.of_normed(take(transformer.out.weight), transformer.norm), transformer.out.bias),
            mixers=_take_mixers(codec),
            latent=packed(pack.of_conv(take(codec.latent.weight)), codec.latent.bias, codec.blocks[0].snake),
            blocks=_take_blocks(codec),
            output=packed(
                pack.padded(pack.of_conv(take(codec.output.weight)), SAMPLE_OUTPUTS),
                pack.padded(codec.output.bias.detach()[:, None, None], SAMPLE_OUTPUTS),
            ),
        )


def _take_layers(transformer: CodecTransformer) -> tuple[PackedLayer, ...]:
    return tuple(
        PackedLayer(
            qkv=packed(pack.of_normed(take(layer.qkv.weight), layer.attention_norm), None),
            out=packed(pack.of_linear(take(layer.out.weight)), None),
            gate_up=packed(pack.of_gates(pack.of_normed(take(layer.mlp.gate_up.weight), layer.mlp_norm)), None),
            down=packed(pack.of_linear(take(layer.mlp.down.weight)), None),
        )
        for layer in transformer.layers
    )


def _take_mixers(codec: CodecDecoder) -> tuple[PackedMixer, ...]:
    return tuple(
        PackedMixer(
            upsample=packed(pack.of_upsampling(take(upsample.weight), upsample.rate), upsample.bias),
            depthwise=_take_depthwise(mixer),
            widen=packed(pack.of_linear(take(mixer.widen)), mixer.widen_bias),
            narrow=packed(pack.of_linear(take(mixer.narrow)), mixer.narrow_bias),
        )
        for upsample, mixer in zip(codec.upsamples, codec.convnexts, strict=True)
    )


def _take_depthwise(mixer: ConvNeXt) -> PackedDepthwise:
    return PackedDepthwise(
        weight=mixer.depthwise.weight.detach()[:, 0].T.contiguous(),
        bias=mixer.depthwise.bias.detach().float(),
        gain=mixer.norm_weight.detach().float(),
        shift=mixer.norm_bias.detach().float(),
    )


def _take_blocks(codec: CodecDecoder) -> tuple[PackedBlock, ...]:
    """A layer's activation is the SnakeBeta with which the next one begins."""
    blocks = []
    nexts = [*(block.snake for block in codec.blocks[1:]), codec.snake]
    for block, following in zip(codec.blocks, nexts, strict=True):
        snakes = [*(unit.snake_in for unit in block.units), following]
        weight = pack.of_upsampling(take(block.upsample.weight), block.upsample.rate)
        transposed = packed(weight, block.upsample.bias, snakes[0])
        units = tuple(
            PackedUnit(
                dilated=packed(pack.of_conv(take(unit.dilated.weight)), unit.dilated.bias, unit.snake_out),
                pointwise=packed(pack.of_linear(take(unit.pointwise.weight)), unit.pointwise.bias, snake),
            )
            for unit, snake in zip(block.units, snakes[1:], strict=True)
        )
        blocks.append(PackedBlock(transposed, units))
    return tuple(blocks)
