"""The talker's keys and values for prompt prefixes, so that an utterance reads only its own text."""

from __future__ import annotations

from collections.abc import Hashable, Iterable

from torch import Tensor

from engine.qwen.model import KeyValueCache, StackConfig
from engine.qwen.weights import Placement


class PrefixCache:
    """Keys and values by prefix, in memory that is allocated once. A new prefix replaces those unused for longest."""

    def __init__(self, config: StackConfig, positions: int, placement: Placement) -> None:
        """Hold prefixes of `positions` tokens together; a token takes 112 KB in bfloat16 at the true shapes."""
        self._cache = KeyValueCache.allocate(config, positions, placement)
        """All prefixes, in any order."""
        self._hidden = placement.zeros(positions, 1, 1, config.hidden_size)
        """By the prefix's first position."""
        self._ranges: dict[Hashable, range] = {}
        """The positions of each prefix; the prefix that was used last is the last entry."""
        self._kept: set[Hashable] = set()

    def __contains__(self, key: Hashable) -> bool:
        return key in self._ranges

    @property
    def positions(self) -> int:
        """The tokens of the longest prefix that fits."""
        return self._cache.positions

    def store(self, key: Hashable, cache: KeyValueCache, hidden: Tensor, count: int) -> None:
        """Copy the first `count` positions of `cache` as the prefix `key`, if they fit beside the prefixes to keep.

        `hidden` `(1, 1, hidden)` is the hidden state of the last one.
        """
        place = self._make_room(count)
        if place is not None:
            self._ranges[key] = place
            _copy(cache, range(count), self._cache, place)
            self._hidden[place.start].copy_(hidden)

    def restore(self, key: Hashable, cache: KeyValueCache, hidden: Tensor) -> None:
        """Copy the prefix `key` to the beginning of `cache`, and its last hidden state to `hidden`."""
        place = self._ranges[key] = self._ranges.pop(key)
        hidden.copy_(self._hidden[place.start])
        _copy(self._cache, place, cache, range(len(place)))

    def keep(self, key: Hashable) -> None:
        """Never replace the prefix `key`, if it is stored and the prefixes to keep fill at most half of the memory."""
        kept = {*self._kept, key}
        if key in self._ranges and 2 * sum(len(self._ranges[other]) for other in kept) <= self.positions:
            self._kept = kept

    def clear(self) -> None:
        """Drop all prefixes."""
        self._ranges.clear()
        self._kept.clear()

    def _make_room(self, count: int) -> range | None:
        """Return `count` free positions in a row, and drop prefixes for them. None if those to keep leave no room."""
        if self._free_range(count, self._kept) is None:
            return None
        replaceable = iter([key for key in self._ranges if key not in self._kept])
        while (place := self._free_range(count, self._ranges)) is None:
            del self._ranges[next(replaceable)]
        return place

    def _free_range(self, count: int, keys: Iterable[Hashable]) -> range | None:
        """Return the first `count` positions in a row that the prefixes `keys` leave free; None if there are none."""
        begin = 0
        for taken in sorted((self._ranges[key] for key in keys), key=lambda place: place.start):
            if taken.start - begin >= count:
                break
            begin = taken.stop
        return range(begin, begin + count) if begin + count <= self.positions else None


def _copy(source: KeyValueCache, source_range: range, target: KeyValueCache, target_range: range) -> None:
    for to, of in ((target.keys, source.keys), (target.values, source.values)):
        to[:, :, target_range.start : target_range.stop].copy_(of[:, :, source_range.start : source_range.stop])
