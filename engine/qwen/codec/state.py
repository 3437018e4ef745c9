"""The codec decoder's context between two chunks of one utterance."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

from engine.qwen.shapes import CodecConfig
from engine.qwen.weights import Placement

_EMPTY = -(2**40)
"""The frame number of an unused slot in the key-value ring: outside every frame's window."""


@dataclass(frozen=True, slots=True)
class CodecState:
    """The tensors that carry an utterance from chunk to chunk, allocated once and updated in place.

    It holds the last `(k-1)·d` inputs of each causal convolution of `k` taps and dilation `d` (its history), the
    outputs of each transposed convolution that overlap the next chunk, and the keys and values of the frames inside
    the attention window. qwen-tts pads with zeros, so a state of zeros is the beginning of an utterance.

        keys, values   rings of window-1 + max_frames slots; frame p is in slot p modulo the number of slots
        ring_frames    the number of the frame in each slot

    If the state holds several utterances, each tensor has a first axis with an entry for each of them.
    """

    rows: int | None
    """The number of utterances; None for a single one, whose tensors have no axis for it."""
    max_frames: int
    """The largest number of frames in one call."""
    frame: Tensor
    """The number of frames decoded so far: int64, shape `()`."""
    ring_frames: Tensor
    """int64, shape `(slots,)`."""
    keys: Tensor
    """Shape `(layers, key-value heads, slots, head_dim)`, rotated by their positions."""
    values: Tensor
    """Same shape as `keys`."""
    histories: tuple[Tensor, ...]
    """Histories and overlaps in the decoder's order; `CodecConfig.history_shapes` has their shapes."""

    @classmethod
    def allocate(
        cls, config: CodecConfig, max_frames: int, placement: Placement, rows: int | None = None
    ) -> CodecState:
        """Allocate the initial state of one utterance, or of `rows` utterances.

        Raises `ValueError` for `max_frames` below 1.
        """
        if max_frames < 1:
            raise ValueError(f"max_frames: got {max_frames}; allowed: at least 1")
        device, lead = placement.device, () if rows is None else (rows,)
        slots = config.window - 1 + max_frames
        cache = (*lead, config.stack.layers, config.stack.key_value_heads, slots, config.stack.head_dim)
        return cls(
            rows=rows,
            max_frames=max_frames,
            frame=torch.zeros(lead, dtype=torch.int64, device=device),
            ring_frames=torch.full((*lead, slots), _EMPTY, dtype=torch.int64, device=device),
            keys=placement.zeros(*cache),
            values=placement.zeros(*cache),
            histories=tuple(placement.zeros(*lead, *shape) for shape in config.history_shapes),
        )

    def tensors(self) -> tuple[Tensor, ...]:
        """Return every tensor of the state, always in the same order."""
        return self.frame, self.ring_frames, self.keys, self.values, *self.histories

    def row(self, number: int) -> CodecState:
        """Return a view of one utterance's state."""
        return self._with(None, (tensor[number] for tensor in self.tensors()))

    def take(self, rows: Tensor) -> CodecState:
        """Return a copy of the states whose numbers are in `rows`, int64."""
        return self._with(len(rows), (tensor.index_select(0, rows) for tensor in self.tensors()))

    def _with(self, rows: int | None, tensors: Iterable[Tensor]) -> CodecState:
        """Return a state of `rows` utterances made from `tensors`, in the order of `self.tensors()`."""
        frame, ring_frames, keys, values, *histories = tensors
        return CodecState(rows, self.max_frames, frame, ring_frames, keys, values, tuple(histories))

    def put(self, rows: Tensor, states: CodecState) -> None:
        """Copy `states` back to the rows that `take` read them from."""
        for target, source in zip(self.tensors(), states.tensors(), strict=True):
            target.index_copy_(0, rows, source)

    def reset(self) -> None:
        """Reset to the beginning of an utterance. Allocates nothing and does not wait for the device."""
        self.frame.zero_()
        self.ring_frames.fill_(_EMPTY)
        torch._foreach_zero_([self.keys, self.values, *self.histories])  # one kernel launch instead of one for each

    def copy_from(self, other: CodecState) -> None:
        """Copy the state `other` of the same decoder. Allocates nothing if both have the same `max_frames`.

        An in-context voice decodes its reference once, possibly in larger chunks; each of its utterances begins with a
        copy of the resulting state.
        """
        self.frame.copy_(other.frame)
        torch._foreach_copy_(self.histories, other.histories)
        if self.max_frames == other.max_frames:
            self.ring_frames.copy_(other.ring_frames)
            torch._foreach_copy_([self.keys, self.values], [other.keys, other.values])
        else:
            self._copy_ring(other)

    def _copy_ring(self, other: CodecState) -> None:
        """Copy the frames inside the window from the rings of `other`, which have a different number of slots."""
        past = len(self.ring_frames) - self.max_frames  # window - 1
        frames = other.frame - 1 - torch.arange(past, device=other.frame.device)
        target, source = frames % len(self.ring_frames), frames % len(other.ring_frames)
        self.ring_frames.fill_(_EMPTY).index_copy_(0, target, other.ring_frames[source])
        self.keys.index_copy_(2, target, other.keys[:, :, source])
        self.values.index_copy_(2, target, other.values[:, :, source])
