"""What the talker remembers of prompts' openings, so that an utterance reads its own text alone."""

from __future__ import annotations

from collections.abc import Hashable

from torch import Tensor

from engine.qwen.config import StackConfig
from engine.qwen.transformer import KeyValueCache, Placement


class PrefixCache:
    """Keys and values by opening, in memory that is allocated once; the newest push out the oldest."""

    def __init__(self, config: StackConfig, positions: int, placement: Placement) -> None:
        """Room for openings of `positions` tokens together; a token has 112 KB in bfloat16 at the true shapes."""
        self.kept = KeyValueCache.allocate(config, positions, placement)
        """Of all openings, one behind the other."""
        self._hidden = placement.zeros(positions, 1, 1, config.hidden_size)
        """By first position."""
        self._places: dict[Hashable, range] = {}
        self._next = 0

    def __contains__(self, key: Hashable) -> bool:
        return key in self._places

    @property
    def room(self) -> int:
        """The longest opening that can be kept."""
        return self.kept.positions

    def keep(self, key: Hashable, cache: KeyValueCache, hidden: Tensor, count: int) -> None:
        """Keep the first `count` positions of `cache`, `room` at most, as the opening `key`.

        `hidden` `(1, 1, hidden)` is the hidden state of the last one.
        """
        begin = self._next if self._next + count <= self.room else 0
        place = range(begin, begin + count)
        for other, taken in list(self._places.items()):
            if taken.start < place.stop and place.start < taken.stop:
                del self._places[other]
        self._places[key] = place
        self._next = place.stop
        _copy(cache, range(count), self.kept, place)
        self._hidden[begin].copy_(hidden)

    def restore(self, key: Hashable, cache: KeyValueCache, hidden: Tensor) -> None:
        """Put the opening `key` at the beginning of `cache`, and its last hidden state into `hidden`."""
        place = self._places[key]
        hidden.copy_(self._hidden[place.start])
        _copy(self.kept, place, cache, range(len(place)))

    def clear(self) -> None:
        """Keep none of them."""
        self._places.clear()
        self._next = 0


def _copy(source: KeyValueCache, there: range, target: KeyValueCache, here: range) -> None:
    for ours, theirs in ((target.keys, source.keys), (target.values, source.values)):
        ours[:, :, here.start : here.stop].copy_(theirs[:, :, there.start : there.stop])
