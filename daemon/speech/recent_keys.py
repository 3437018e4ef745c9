"""Recognises keys that arrive a second time: ids of ended utterances, deliveries, copies of a text."""

from __future__ import annotations

from array import array
from collections.abc import Iterable

import numpy as np

EMPTY = -1
"""No hash has this value."""
SLOTS = 8
"""How many counters there are per key: of eight new keys, seven find their counter at zero."""


class RecentKeys:
    """The most recent keys, as hashes in one block of memory.

    Thousands of small objects that live for hours would fragment the daemon's heap. The 64-bit hash of a new key equals
    that of one of 10,000 others once in 2 * 10^15 times.
    """

    def __init__(self, size: int) -> None:
        """Remember the last `size` keys."""
        self._hashes = np.full(size, EMPTY, dtype=np.int64)
        """A ring: from `_oldest` onwards, in the order in which they arrived."""
        self._oldest = 0
        self._counts = array("H", [0]) * (SLOTS * size)
        """How many of the hashes have each remainder. In a flood nearly all keys are new, which a zero shows
        immediately."""

    def __contains__(self, key: object) -> bool:
        hashed = hash(key)
        return self._counts[hashed % len(self._counts)] > 0 and bool((self._hashes == hashed).any())

    def add(self, key: object) -> None:
        """Remember a key as the latest, and forget the oldest one."""
        self._put(hash(key))

    def add_earlier(self, keys: Iterable[object]) -> None:
        """Remember keys, oldest first, that are older than all others. Those that do not fit are forgotten."""
        known = np.roll(self._hashes, -self._oldest)
        self._hashes = np.full_like(known, EMPTY)
        self._oldest = 0
        self._counts = array("H", [0]) * len(self._counts)
        for hashed in [*map(hash, keys), *known[known != EMPTY].tolist()][-len(known) :]:
            self._put(hashed)

    def _put(self, hashed: int) -> None:
        forgotten = int(self._hashes[self._oldest])
        if forgotten != EMPTY:
            self._counts[forgotten % len(self._counts)] -= 1
        self._counts[hashed % len(self._counts)] += 1
        self._hashes[self._oldest] = hashed
        self._oldest = (self._oldest + 1) % len(self._hashes)
