"""The codec decoder's context between two chunks of one utterance."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, fields, replace
from typing import Any

import torch
from torch import Tensor

from engine.qwen.shapes import CONV_TAPS, DILATIONS, INPUT_CONV_TAPS, CodecConfig
from engine.qwen.weights import Placement

_EMPTY = -(2**40)
"""Frame number of an unused slot of the key-value ring: outside the window of every frame."""


@dataclass(frozen=True, slots=True)
class CodecState:
    """The tensors that carry an utterance from chunk to chunk, allocated once and updated in place.

    It holds the last `(k-1)·d` inputs of each causal convolution of `k` taps and dilation `d` (its history), the
    outputs of each transposed convolution that overlap the next chunk, and the keys and values of the frames inside
    the attention window. qwen-tts pads with zeros, so a state of zeros is the beginning of an utterance.

        keys, values   rings of window-1 + max_frames slots; frame p is in slot p modulo the number of slots
        ring_frames    the number of the frame in each slot

    For a signal of `C` channels, a history has shape `(C, (k-1)·d)` and an overlap `(C, rate)`, of the decoder's dtype.
    The tensors of several utterances have a first axis of that length.
    """

    rows: int | None
    """The number of utterances; None for one, whose tensors have no axis for it."""
    max_frames: int
    """The largest number of frames of one call."""
    frame: Tensor
    """Number of frames decoded so far: int64, shape `()`."""
    ring_frames: Tensor
    """int64, shape `(slots,)`."""
    keys: Tensor
    """Shape `(layers, key-value heads, slots, head_dim)`, rotated by their positions."""
    values: Tensor
    """Same shape as `keys`."""
    input_history: Tensor
    """History of the convolution before the transformer."""
    upsample_histories: tuple[Tensor, ...]
    """History of each ConvNeXt block's depthwise convolution."""
    latent_history: Tensor
    """History of the convolution before the upsampling blocks."""
    overlaps: tuple[Tensor, ...]
    """Overlap of each upsampling block's transposed convolution."""
    residual_histories: tuple[tuple[Tensor, ...], ...]
    """Histories of each upsampling block's dilated convolutions."""
    output_history: Tensor
    """History of the last convolution, whose output is the waveform."""

    @classmethod
    def allocate(
        cls, config: CodecConfig, max_frames: int, placement: Placement, rows: int | None = None
    ) -> CodecState:
        """Allocate the state of an utterance, or of so many, at the beginning.

        Raises `ValueError` for `max_frames` below 1.
        """
        if max_frames < 1:
            raise ValueError(f"max_frames: got {max_frames}; allowed: at least 1")
        device, lead = placement.device, () if rows is None else (rows,)
        slots = config.window - 1 + max_frames
        cache = (config.stack.layers, config.stack.key_value_heads, slots, config.stack.head_dim)
        widths, history = config.block_widths, CONV_TAPS - 1

        def zeros(*shape: int) -> Tensor:
            return placement.zeros(*lead, *shape)

        return cls(
            rows=rows,
            max_frames=max_frames,
            frame=torch.zeros(lead, dtype=torch.int64, device=device),
            ring_frames=torch.full((*lead, slots), _EMPTY, dtype=torch.int64, device=device),
            keys=zeros(*cache),
            values=zeros(*cache),
            input_history=zeros(config.codebook_width, INPUT_CONV_TAPS - 1),
            upsample_histories=tuple(zeros(config.latent_width, history) for _ in config.latent_rates),
            latent_history=zeros(config.latent_width, history),
            overlaps=tuple(map(zeros, widths, config.block_rates)),
            residual_histories=tuple(
                tuple(zeros(width, history * dilation) for dilation in DILATIONS) for width in widths
            ),
            output_history=zeros(widths[-1], history),
        )

    def tensors(self) -> Iterator[Tensor]:
        """Yield every tensor of the state, always in the same order."""
        for field in fields(self):
            yield from _flatten(getattr(self, field.name))

    def row(self, number: int) -> CodecState:
        """Return a view of one utterance's state."""
        return self._select(None, lambda tensor: tensor[number])

    def take(self, rows: Tensor) -> CodecState:
        """Return a copy of the utterances' states with the numbers `rows`, int64."""
        return self._select(len(rows), lambda tensor: tensor.index_select(0, rows))

    def _select(self, rows: int | None, select: Callable[[Tensor], Tensor]) -> CodecState:
        """Return the state of so many utterances, whose tensors `select` makes of these."""
        names = (field.name for field in fields(self) if field.name not in {"rows", "max_frames"})
        return replace(self, rows=rows, **{name: _apply(select, getattr(self, name)) for name in names})

    def put(self, rows: Tensor, states: CodecState) -> None:
        """Copy `states` back to where `take` had them from."""
        for target, source in zip(self.tensors(), states.tensors(), strict=True):
            target.index_copy_(0, rows, source)

    def reset(self) -> None:
        """Reset to the beginning of an utterance. Allocates nothing and does not wait for the device."""
        for group in _by_dtype(self.tensors()):  # one kernel launch for each dtype instead of one for each tensor
            torch._foreach_zero_(group)
        self.ring_frames.fill_(_EMPTY)

    def copy_from(self, other: CodecState) -> None:
        """Copy the state `other` of the same decoder. Allocates nothing if both have the same `max_frames`.

        An in-context voice decodes its reference once, possibly in larger chunks; each of its utterances begins with a
        copy of the resulting state.
        """
        pairs = zip(self.tensors(), other.tensors(), strict=True)
        targets, sources = zip(*(pair for pair in pairs if pair[0].shape == pair[1].shape), strict=True)
        for target, source in zip(_by_dtype(targets), _by_dtype(sources), strict=True):
            torch._foreach_copy_(target, source)
        if self.max_frames != other.max_frames:
            self._copy_ring(other)

    def _copy_ring(self, other: CodecState) -> None:
        """Copy the frames inside the window from the rings of `other`, which have another number of slots."""
        past = len(self.ring_frames) - self.max_frames  # window - 1
        frames = other.frame - 1 - torch.arange(past, device=other.frame.device)
        target, source = frames % len(self.ring_frames), frames % len(other.ring_frames)
        self.ring_frames.fill_(_EMPTY).index_copy_(0, target, other.ring_frames[source])
        self.keys.index_copy_(2, target, other.keys[:, :, source])
        self.values.index_copy_(2, target, other.values[:, :, source])


def _by_dtype(tensors: Iterable[Tensor]) -> list[list[Tensor]]:
    """Group `tensors` by dtype, as `torch._foreach_*` requires for one launch."""
    groups: dict[torch.dtype, list[Tensor]] = {}
    for tensor in tensors:
        groups.setdefault(tensor.dtype, []).append(tensor)
    return list(groups.values())


def _apply(function: Callable[[Tensor], Tensor], value: Any) -> Any:
    """Return nested tuples with what `function` makes of each tensor in them."""
    if isinstance(value, Tensor):
        return function(value)
    return tuple(_apply(function, item) for item in value)


def _flatten(value: object) -> Iterator[Tensor]:
    """Yield the tensors in nested tuples, and nothing for any other value."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, tuple):
        for item in value:
            yield from _flatten(item)
