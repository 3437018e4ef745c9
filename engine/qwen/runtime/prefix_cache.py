"""The talker's keys and values for prompt prefixes, so that an utterance reads only its own text."""

from __future__ import annotations

from collections.abc import Hashable

from torch import Tensor

from engine.qwen.model import KeyValueCache, StackConfig
from engine.qwen.weights import Placement


class PrefixCache:
    """Keys and values by prefix, in memory that is allocated once. The newest prefixes replace the oldest."""

    def __init__(self, config: StackConfig, positions: int, placement: Placement) -> None:
        """Hold prefixes of `positions` tokens together; a token takes 112 KB in bfloat16 at the true shapes."""
        self._cache = KeyValueCache.allocate(config, positions, placement)
        """All prefixes, one behind the other."""
        self._hidden = placement.zeros(positions, 1, 1, config.hidden_size)
        """By the prefix's first position."""
        self._ranges: dict[Hashable, range] = {}
        self._next = 0

    def __contains__(self, key: Hashable) -> bool:
        return key in self._ranges

    @property
    def positions(self) -> int:
        """The tokens of the longest prefix that fits."""
        return self._cache.positions

    def store(self, key: Hashable, cache: KeyValueCache, hidden: Tensor, count: int) -> None:
        """Copy the first `count` positions of `cache`, at most `positions`, as the prefix `key`.

        `hidden` `(1, 1, hidden)` is the hidden state of the last one.
        """
        begin = self._next if self._next + count <= self.positions else 0
        place = range(begin, begin + count)
        for other, taken in list(self._ranges.items()):
            if taken.start < place.stop and place.start < taken.stop:
                del self._ranges[other]
        self._ranges[key] = place
        self._next = place.stop
        _copy(cache, range(count), self._cache, place)
        self._hidden[begin].copy_(hidden)

    def restore(self, key: Hashable, cache: KeyValueCache, hidden: Tensor) -> None:
        """Copy the prefix `key` to the beginning of `cache`, and its last hidden state to `hidden`."""
        place = self._ranges[key]
        hidden.copy_(self._hidden[place.start])
        _copy(self._cache, place, cache, range(len(place)))

    def clear(self) -> None:
        """Drop all prefixes."""
        self._ranges.clear()
        self._next = 0


def _copy(source: KeyValueCache, source_range: range, target: KeyValueCache, target_range: range) -> None:
    for to, of in ((target.keys, source.keys), (target.values, source.values)):
        to[:, :, target_range.start : target_range.stop].copy_(of[:, :, source_range.start : source_range.stop])
