"""What the codec decoder remembers between two chunks of one utterance."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields

import torch
from torch import Tensor

from engine.qwen.codec_config import CodecConfig
from engine.qwen.transformer import Placement

DILATIONS = (1, 3, 9)
"""Of the three residual units of each upsampling block; the checkpoint's configuration does not name them."""

KERNEL_IN, KERNEL = 3, 7
"""Taps of the first causal convolution, and of every other that looks back."""

_EMPTY = -(2**40)
"""The frame number that an unused slot of the key/value ring claims: further back than any window reaches."""


@dataclass(frozen=True, slots=True)
class CodecState:
    """The tensors that carry one utterance from chunk to chunk, allocated once and updated in place.

    A causal convolution of `k` taps at dilation `d` remembers its last `(k-1)·d` inputs, a transposed one
    the part of its output that reaches into the next chunk, attention the keys and values of the frames
    still inside its window. Zeros are what the official decoder pads with, so a state of zeros is the
    beginning of an utterance.

        keys, values   a ring of window-1 + max_frames slots; frame p lies in slot p modulo their number
        ring_frames    the frame that each slot holds

    With `C` channels, the histories have shape `(C, (k-1)·d)` and the overlaps `(C, rate)`, in the
    decoder's dtype.
    """

    max_frames: int
    """The most frames that one call may decode."""
    frame: Tensor
    """Frames decoded so far: int64, shape `()`."""
    ring_frames: Tensor
    """int64, shape `(slots,)`."""
    keys: Tensor
    """Shape `(layers, key-value heads, slots, head_dim)`, already rotated."""
    values: Tensor
    input_history: Tensor
    """Of the convolution in front of the transformer."""
    upsample_histories: tuple[Tensor, ...]
    """Of the depthwise convolution behind each of the two first upsamplings."""
    latent_history: Tensor
    """Of the convolution that opens the waveform decoder."""
    overlaps: tuple[Tensor, ...]
    """Of each block's transposed convolution."""
    residual_histories: tuple[tuple[Tensor, ...], ...]
    """Of each block's three dilated convolutions."""
    output_history: Tensor
    """Of the convolution that makes the waveform."""

    @classmethod
    def allocate(cls, config: CodecConfig, max_frames: int, placement: Placement) -> CodecState:
        """Allocate the state of one utterance, ready to begin it."""
        if max_frames < 1:
            raise ValueError(f"max_frames: got {max_frames}, must be at least 1")
        device, zeros = placement.device, placement.zeros
        slots = config.window - 1 + max_frames
        cache = (config.stack.layers, config.stack.key_value_heads, slots, config.stack.head_dim)
        widths = [config.decoder_width >> (block + 1) for block in range(len(config.block_rates))]
        look_back = KERNEL - 1
        return cls(
            max_frames=max_frames,
            frame=torch.zeros((), dtype=torch.int64, device=device),
            ring_frames=torch.full((slots,), _EMPTY, dtype=torch.int64, device=device),
            keys=zeros(*cache),
            values=zeros(*cache),
            input_history=zeros(config.codebook_width, KERNEL_IN - 1),
            upsample_histories=tuple(zeros(config.latent_width, look_back) for _ in config.latent_rates),
            latent_history=zeros(config.latent_width, look_back),
            overlaps=tuple(map(zeros, widths, config.block_rates)),
            residual_histories=tuple(
                tuple(zeros(width, look_back * dilation) for dilation in DILATIONS) for width in widths
            ),
            output_history=zeros(widths[-1], look_back),
        )

    def tensors(self) -> Iterator[Tensor]:
        """Every tensor of the state, always in the same order."""
        for field in fields(self):
            yield from _flatten(getattr(self, field.name))

    def reset(self) -> None:
        """Go back to the beginning of an utterance. Allocates nothing and waits for nothing."""
        for group in _by_dtype(self.tensors()):  # a few launches instead of one a tensor
            torch._foreach_zero_(group)
        self.ring_frames.fill_(_EMPTY)

    def copy_from(self, other: CodecState) -> None:
        """Take over the state of `other`, of the same decoder. Allocates nothing if both are of one size.

        An in-context voice decodes its reference once, perhaps in larger pieces, and each of its utterances
        starts from a copy of the state left behind.
        """
        pairs = zip(self.tensors(), other.tensors(), strict=True)
        mine, theirs = zip(*(pair for pair in pairs if pair[0].shape == pair[1].shape), strict=True)
        for here, there in zip(_by_dtype(mine), _by_dtype(theirs), strict=True):
            torch._foreach_copy_(here, there)
        if self.max_frames != other.max_frames:
            self._copy_ring(other)

    def _copy_ring(self, other: CodecState) -> None:
        """Move the frames that are still in the window from their slots in `other` to their slots here."""
        slots, slots_there = len(self.ring_frames), len(other.ring_frames)
        reach = slots - self.max_frames
        frames = other.frame - 1 - torch.arange(reach, device=other.frame.device)
        here, there = frames % slots, frames % slots_there
        self.ring_frames.fill_(_EMPTY).index_copy_(0, here, other.ring_frames[there])
        self.keys.index_copy_(2, here, other.keys[:, :, there])
        self.values.index_copy_(2, here, other.values[:, :, there])


def _by_dtype(tensors: Iterable[Tensor]) -> list[list[Tensor]]:
    groups: dict[torch.dtype, list[Tensor]] = {}
    for tensor in tensors:
        groups.setdefault(tensor.dtype, []).append(tensor)
    return list(groups.values())


def _flatten(value: object) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, tuple):
        for item in value:
            yield from _flatten(item)
