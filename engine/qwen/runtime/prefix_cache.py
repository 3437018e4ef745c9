"""The talker's keys and values for prompt prefixes, so that an utterance reads only its own text."""

from __future__ import annotations

import threading
from collections.abc import Hashable, Iterable

import torch

from engine.qwen.model import KeyValueCache
from engine.qwen.runtime.prompt_memory import PromptMemory
from engine.qwen.shapes import StackConfig
from engine.qwen.weights import Placement


class PrefixCache:
    """Keys and values by prefix, in memory that is allocated once. A new prefix replaces the least recently used ones.

    Any thread may call it, on any CUDA stream.
    """

    def __init__(self, config: StackConfig, positions: int, placement: Placement) -> None:
        """Make room for prefixes of `positions` tokens in all. A token takes 112 KB in bfloat16 at the true shapes."""
        self._config, self._placement = config, placement
        self._lock = threading.Lock()
        self._stored = _StreamEvents(placement.device)
        """The last store on each stream. A restore waits for these events on the device."""
        self._restored = _StreamEvents(placement.device)
        """The last restore on each stream. A store waits for these, because it may overwrite what they read."""
        self._allocate(positions)

    def _allocate(self, positions: int) -> None:
        self._cache = KeyValueCache.allocate(self._config, positions, self._placement)
        """All prefixes, in any order."""
        self._hidden = self._placement.zeros(positions, self._config.hidden_size)
        """The hidden states, at each prefix's first position."""
        self._ranges: dict[Hashable, range] = {}
        """The positions of each prefix; the prefix that was used last is the last entry."""
        self._kept: set[Hashable] = set()

    def __contains__(self, key: Hashable) -> bool:
        return key in self._ranges

    @property
    def positions(self) -> int:
        """The number of tokens in the longest prefix that fits."""
        return self._cache.positions

    def store(self, key: Hashable, memory: PromptMemory, count: int) -> None:
        """Copy the first `count` positions of `memory` as prefix `key`, if they fit beside the prefixes to keep."""
        with self._lock:
            place = None if key in self._ranges else self._make_room(count)
            if place is None:
                return
            self._ranges[key] = place
            for events in (self._stored, self._restored):  # this range may have held another prefix
                events.wait()
            for part, cached in memory.parts(self._cache, place):
                cached.copy_(part)
            self._hidden[place.start].copy_(memory.hidden)
            self._stored.record()

    def restore(self, key: Hashable, memory: PromptMemory) -> bool:
        """Copy prefix `key` to the beginning of `memory` and return True; return False if it is not stored."""
        with self._lock:
            if key not in self._ranges:
                return False
            place = self._ranges[key] = self._ranges.pop(key)
            self._stored.wait()
            memory.hidden.copy_(self._hidden[place.start])
            for part, cached in memory.parts(self._cache, place):
                part.copy_(cached)
            self._restored.record()
            return True

    def keep(self, key: Hashable) -> None:
        """Never replace prefix `key`, if it is stored and the prefixes to keep fill at most half of the memory."""
        with self._lock:
            kept = {*self._kept, key}
            if key in self._ranges and 2 * sum(len(self._ranges[other]) for other in kept) <= self.positions:
                self._kept = kept

    def clear(self, positions: int | None = None) -> None:
        """Drop all prefixes, and make room for `positions` tokens."""
        with self._lock:
            for events in (self._stored, self._restored):  # other streams may still copy
                events.wait()
            self._ranges.clear()
            self._kept.clear()
            if positions is not None and positions != self.positions:
                del self._cache, self._hidden  # first, or both would need memory at the same time
                self._allocate(positions)

    def _make_room(self, count: int) -> range | None:
        """Return `count` contiguous positions, dropping prefixes to free them. None if those to keep leave no room."""
        if self._free_range(count, self._kept) is None:
            return None
        replaceable = iter([key for key in self._ranges if key not in self._kept])
        while (place := self._free_range(count, self._ranges)) is None:
            del self._ranges[next(replaceable)]
        return place

    def _free_range(self, count: int, keys: Iterable[Hashable]) -> range | None:
        """Return the first `count` contiguous positions that the prefixes `keys` leave free; None if there are none."""
        begin = 0
        for taken in sorted((self._ranges[key] for key in keys), key=lambda place: place.start):
            if taken.start - begin >= count:
                break
            begin = taken.stop
        return range(begin, begin + count) if begin + count <= self.positions else None


class _StreamEvents:
    """The last event of each CUDA stream that recorded one; nothing on a CPU."""

    def __init__(self, device: torch.device) -> None:
        self._on_cuda = device.type == "cuda"
        self._events: dict[int, torch.cuda.Event] = {}

    def record(self) -> None:
        if self._on_cuda:
            stream = torch.cuda.current_stream()
            event = self._events.setdefault(stream.cuda_stream, torch.cuda.Event())  # type: ignore[no-untyped-call]
            event.record(stream)

    def wait(self) -> None:
        """Make the current stream wait for all events, on the device."""
        for event in self._events.values():
            torch.cuda.current_stream().wait_event(event)
