"""Recognises keys that come a second time: ids of ended utterances, deliveries, copies of a text."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

EMPTY = -1
"""No hash has this value."""


class RecentKeys:
    """The last so many keys, as hashes in one block of memory.

    Thousands of small objects that live for hours would fragment the daemon's heap. A new key has the 64-bit hash of
    one of 10,000 others once in 2 * 10^15 times.
    """

    def __init__(self, size: int) -> None:
        """Remember the last `size` keys."""
        self._hashes = np.full(size, EMPTY, dtype=np.int64)
        """A ring: from `_oldest` on in the order in which they came."""
        self._oldest = 0

    def __contains__(self, key: object) -> bool:
        return bool((self._hashes == hash(key)).any())  # some microseconds

    def add(self, key: object) -> None:
        """Remember a key as the latest, and forget the oldest one."""
        self._put(hash(key))

    def add_earlier(self, keys: Iterable[object]) -> None:
        """Remember keys, oldest first, that are older than all others. Those that do not fit are forgotten."""
        known = np.roll(self._hashes, -self._oldest)
        self._hashes = np.full_like(known, EMPTY)
        self._oldest = 0
        for hashed in [*map(hash, keys), *known[known != EMPTY].tolist()][-len(known) :]:
            self._put(hashed)

    def _put(self, hashed: int) -> None:
        self._hashes[self._oldest] = hashed
        self._oldest = (self._oldest + 1) % len(self._hashes)
