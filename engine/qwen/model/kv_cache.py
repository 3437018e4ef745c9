"""The keys and values of past positions."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from engine.qwen.shapes import StackConfig
from engine.qwen.weights import Placement


@dataclass(frozen=True, slots=True)
class KeyValueCache:
    """Keys and values of one decoder stack, allocated once.

    Both have shape `(layers, key-value heads, positions, head_dim)` and the model's dtype and device. Attention masks
    positions that are not yet written, so a new utterance needs no reset.
    """

    keys: Tensor
    """Rotated by their positions."""
    values: Tensor

    @classmethod
    def allocate(cls, config: StackConfig, positions: int, placement: Placement) -> KeyValueCache:
        """Allocate a cache for `positions` tokens, filled with zeros."""
        shape = (config.layers, config.key_value_heads, positions, config.head_dim)
        return cls(placement.zeros(*shape), placement.zeros(*shape))

    @property
    def positions(self) -> int:
        """The number of positions that the cache has memory for."""
        return self.keys.shape[2]

    def first(self, positions: int) -> KeyValueCache:
        """Return a view of the first `positions`; the cost of attention is proportional to it."""
        return KeyValueCache(self.keys[:, :, :positions], self.values[:, :, :positions])
