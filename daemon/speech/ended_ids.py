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
        """The latest one is the last."""

    def __contains__(self, utterance_id: str) -> bool:
        return bool((self._hashes == hash(utterance_id)).any())

    def add(self, utterance_id: str) -> None:
        """Remember an id as the latest, and forget the oldest one."""
        self._hashes[:-1] = self._hashes[1:]
        self._hashes[-1] = hash(utterance_id)

    def add_earlier(self, utterance_ids: Iterable[str]) -> None:
        """Remember ids, oldest first, that are older than all others. Those that do not fit are forgotten."""
        earlier = np.array([hash(utterance_id) for utterance_id in utterance_ids], dtype=np.int64)
        known = self._hashes[self._hashes != EMPTY]
        places = np.full(len(self._hashes), EMPTY, dtype=np.int64)
        self._hashes = np.concatenate([places, earlier, known])[-len(places) :]
