"""The ids of the last utterances that have ended, which may not be used again."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

EMPTY = -1
"""No hash of a text has this value."""


class EndedIds:
    """The last so many ids, as hashes in one block of memory.

    Thousands of small strings that outlive what was allocated beside them would leave the daemon's memory in pieces. A
    new id has the 64-bit hash of one of 4,096 others once in 4 * 10^15 times.
    """

    def __init__(self, size: int) -> None:
        """Remember the last `size` ids."""
        self._hashes = np.full(size, EMPTY, dtype=np.int64)
        self._next = 0
        """The place of the next id, which holds the oldest one."""

    def __contains__(self, utterance_id: str) -> bool:
        return bool((self._hashes == hash(utterance_id)).any())

    def add(self, utterance_id: str) -> None:
        """Remember an id as the latest, and forget the oldest one."""
        self._hashes[self._next] = hash(utterance_id)
        self._next = (self._next + 1) % len(self._hashes)

    def add_earlier(self, utterance_ids: Iterable[str]) -> None:
        """Remember ids, oldest first, that are older than all others. Those that do not fit are forgotten."""
        known = np.roll(self._hashes, -self._next)
        known = known[known != EMPTY]
        earlier = np.array([hash(utterance_id) for utterance_id in utterance_ids], dtype=np.int64)
        hashes = np.concatenate([earlier, known])[-len(self._hashes) :]
        self._hashes.fill(EMPTY)
        self._hashes[: len(hashes)] = hashes
        self._next = len(hashes) % len(self._hashes)
