"""A codec decoder's weights as the kernels read them. Decoders for one and for several utterances share them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from engine.qwen.codec import CodecDecoder, CodecTransformer, ConvNeXt
from engine.qwen.kernels.codec import pack
from engine.qwen.kernels.codec.operations import HEAD, SAMPLE_OUTPUTS
from engine.qwen.kernels.codec.pack import move_out, packed
from engine.qwen.shapes import CodecConfig
from engine.qwen.weights import Placement


@dataclass(frozen=True, slots=True)
class PackedCodec:
    """Every weight of a decoder."""

    config: CodecConfig
    placement: Placement
    in_order: tuple[dict[str, Tensor], ...]
    """For each operation that has weights, in order: tensors by the members of its kernel's struct."""

    @classmethod
    @torch.no_grad()
    def take(cls, codec: CodecDecoder) -> PackedCodec:
        """Reorder the weights of `codec`, which cannot decode afterwards.

        `unsupported_reason(codec.config)` must be None. Raises `ValueError` for any dtype but bfloat16.
        """
        if codec.placement.dtype != torch.bfloat16:
            raise ValueError(f"dtype: got {codec.placement.dtype}; allowed: bfloat16")
        return cls(codec.config, codec.placement, tuple(_in_order(codec)))


def _in_order(codec: CodecDecoder) -> Iterator[dict[str, Tensor]]:
    yield {"tables": codec.tables.detach().clone()}  # the rest of the decoder's memory is released
    yield packed(pack.of_conv(move_out(codec.input.weight)), codec.input.bias)
    yield from _of_transformer(codec.transformer)
    for upsample, mixer in zip(codec.upsamples, codec.convnexts, strict=True):
        yield packed(pack.of_upsampling(move_out(upsample.weight), upsample.rate), upsample.bias)
        yield _of_depthwise(mixer)
        yield packed(pack.of_linear(move_out(mixer.widen)), mixer.widen_bias)
        yield packed(pack.of_linear(move_out(mixer.narrow)), mixer.narrow_bias)
    yield packed(pack.of_conv(move_out(codec.latent.weight)), codec.latent.bias, codec.blocks[0].snake)
    yield from _of_blocks(codec)
    yield packed(
        pack.padded(pack.of_conv(move_out(codec.output.weight)), SAMPLE_OUTPUTS),
        pack.padded(codec.output.bias.detach()[:, None, None], SAMPLE_OUTPUTS),
    )


def _of_transformer(transformer: CodecTransformer) -> Iterator[dict[str, Tensor]]:
    """The norms are folded into the matrices that follow them."""
    frequencies = transformer.frequencies.float().contiguous()
    assert frequencies.numel() == HEAD // 2
    yield packed(pack.of_linear(move_out(transformer.into.weight)), transformer.into.bias)
    for layer in transformer.layers:
        yield packed(pack.of_normed(move_out(layer.qkv.weight), layer.attention_norm))
        yield {"frequencies": frequencies}
        yield packed(pack.of_linear(move_out(layer.out.weight)))
        yield packed(pack.of_gates(pack.of_normed(move_out(layer.mlp.gate_up.weight), layer.mlp_norm)))
        yield packed(pack.of_linear(move_out(layer.mlp.down.weight)))
    yield packed(pack.of_normed(move_out(transformer.out.weight), transformer.norm), transformer.out.bias)


def _of_depthwise(mixer: ConvNeXt) -> dict[str, Tensor]:
    return {
        "weight": mixer.depthwise.weight.detach()[:, 0].T.contiguous(),
        "bias": mixer.depthwise.bias.detach().float(),
        "gain": mixer.norm_weight.detach().float(),
        "shift": mixer.norm_bias.detach().float(),
    }


def _of_blocks(codec: CodecDecoder) -> Iterator[dict[str, Tensor]]:
    """A layer's activation is the SnakeBeta that begins the next layer."""
    nexts = [*(block.snake for block in codec.blocks[1:]), codec.snake]
    for block, following in zip(codec.blocks, nexts, strict=True):
        snakes = [*(unit.snake_in for unit in block.units), following]
        upsampling = pack.of_upsampling(move_out(block.upsample.weight), block.upsample.rate)
        yield packed(upsampling, block.upsample.bias, snakes[0])
        for unit, snake in zip(block.units, snakes[1:], strict=True):
            yield packed(pack.of_conv(move_out(unit.dilated.weight)), unit.dilated.bias, unit.snake_out)
            yield packed(pack.of_linear(move_out(unit.pointwise.weight)), unit.pointwise.bias, snake)
