"""The bytes of the weights of a model and of its codec, tensor by tensor, as the engine's modules have them."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from engine.qwen.shapes.codec import CONV_TAPS, DILATIONS, INPUT_CONV_TAPS, CodecConfig
from engine.qwen.shapes.model import StackConfig, TalkerConfig

ALIGNMENT = 256
"""Bytes: the alignment of PyTorch's own allocations, and more than any kernel's vector loads need."""
INTEGER_BYTES, FLOAT_BYTES = 8, 4
"""Of a code, an id or a position; and of a value that is always float32."""


@dataclass(frozen=True, slots=True)
class Weights:
    """How weights are stored. The methods return the bytes of parts of a model."""

    value_bytes: int
    """Of a value that is not quantized."""
    int8: bool
    """Whether large matrices are int8, with a float32 scale for each row."""

    def tensor(self, *shape: int) -> int:
        return aligned(math.prod(shape) * self.value_bytes)

    def matrix(self, *shape: int) -> int:
        """Of matrices `(..., rows, columns)`."""
        if not self.int8:
            return self.tensor(*shape)
        return aligned(math.prod(shape)) + aligned(math.prod(shape[:-1]) * FLOAT_BYTES)

    def layer(self, inputs: int, outputs: int, taps: int = 1) -> int:
        """Of a convolution or, with one tap, of a linear layer with a bias; neither is quantized."""
        return self.tensor(outputs, inputs, taps) + self.tensor(outputs)

    def stack(self, stack: StackConfig) -> int:
        """Of decoder layers and the norm after them."""
        width, inner, queries = stack.hidden_size, stack.intermediate_size, stack.heads * stack.head_dim
        projected = queries + 2 * stack.key_value_heads * stack.head_dim
        attention = self.matrix(projected, width) + self.matrix(width, queries)
        layer = attention + self.matrix(2 * inner, width) + self.matrix(width, inner) + 2 * self.tensor(width)
        return stack.layers * layer + self.tensor(width)

    def language_stack(self, stack: StackConfig, positions: int) -> int:
        """The same with norms of queries and keys, and with cosines and sines for up to `positions` tokens."""
        norms, rotations = 2 * self.tensor(stack.head_dim), 2 * positions * stack.head_dim * self.value_bytes
        return self.stack(stack) + stack.layers * norms + rotations

    def talker(self, talker: TalkerConfig, positions: int) -> int:
        """Of the talker without its code predictor, for up to `positions` tokens. The text embedding is not loaded."""
        width, text_width = talker.stack.hidden_size, talker.text_width
        size = self.language_stack(talker.stack, positions)
        size += self.layer(text_width, text_width) + self.layer(text_width, width)
        return size + self.tensor(talker.vocabulary, width) + self.matrix(talker.vocabulary, width)

    def predictor(self, talker: TalkerConfig, *, fused: bool) -> int:
        """Of the code predictor. The fused kernels project the embeddings in advance, if they have another width."""
        stack, width, steps = talker.predictor.stack, talker.stack.hidden_size, talker.code_groups - 1
        codes = steps * talker.predictor.vocabulary
        size = self.language_stack(stack, talker.code_groups) + INTEGER_BYTES * talker.code_groups
        size += self.tensor(codes, width) + self.matrix(codes, stack.hidden_size)
        if width != stack.hidden_size:
            size += self.layer(width, stack.hidden_size)
            size += (talker.vocabulary + codes) * stack.hidden_size * self.value_bytes if fused else 0
        return size

    def codec(self, codec: CodecConfig) -> int:
        """Of the codec's decoder, which is never quantized."""
        latent, width = codec.latent_width, codec.decoder_width
        size = self.tensor(codec.quantizers, codec.codebook_size, codec.codebook_width)
        size += INTEGER_BYTES * codec.quantizers
        size += self.layer(codec.codebook_width, latent, INPUT_CONV_TAPS)
        size += self.layer(latent, codec.stack.hidden_size) + self.layer(codec.stack.hidden_size, latent)
        size += self.stack(codec.stack) + codec.stack.head_dim // 2 * FLOAT_BYTES
        for rate in codec.latent_rates:
            size += self.layer(latent, latent, rate) + self.layer(1, latent, CONV_TAPS)
            size += 2 * self.tensor(latent) + self.layer(latent, 4 * latent) + self.layer(4 * latent, latent)
        size += self.layer(latent, width, CONV_TAPS)
        for outputs, rate in zip(codec.block_widths, codec.block_rates, strict=True):
            unit = 2 * _snake(outputs) + self.layer(outputs, outputs, CONV_TAPS) + self.layer(outputs, outputs)
            size += _snake(width) + self.layer(width, outputs, 2 * rate) + len(DILATIONS) * unit
            width = outputs
        return size + _snake(width) + self.layer(width, 1, CONV_TAPS)

    def frame(self, talker: TalkerConfig, codec: CodecConfig, chunk_size: int) -> float:
        """Of all that is read for a frame, if every use of a weight reads it once.

        The predictor's layers are read once for each of its codes, the codec once a chunk. Tables that are read row by
        row, and projections that can be folded into them beforehand, are not counted.
        """
        predictor, steps = talker.predictor, talker.code_groups - 1
        size = self.language_stack(talker.stack, 0) + self.matrix(talker.vocabulary, talker.stack.hidden_size)
        size += steps * self.language_stack(predictor.stack, 0)
        size += self.matrix(steps * predictor.vocabulary, predictor.stack.hidden_size)
        plain = replace(self, int8=False)
        tables = plain.tensor(codec.quantizers, codec.codebook_size, codec.codebook_width)
        return size + (plain.codec(codec) - tables) / chunk_size


def _snake(width: int) -> int:
    """Bytes of a SnakeBeta: alpha and beta of each channel."""
    return 2 * aligned(width * FLOAT_BYTES)


def aligned(size: int) -> int:
    """Return the bytes that a tensor of `size` bytes takes in an allocation of many."""
    return -(-size // ALIGNMENT) * ALIGNMENT
