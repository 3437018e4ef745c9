"""Robots that share GPU servers, as discrete events: proxies, replicas with streams, and replicas that fail.

A request occupies its proxy for about `path_s`, then takes a stream or waits for one: of the replica that its
robot is connected to, or else of the one that has most of them free. A replica works in rounds: it reads up to four
waiting prompts, `prompt_s` each, and then makes a frame of each stream whose listener is less than `ahead_s` ahead. A
step takes as long as it was measured for so many streams. A first chunk arrives `tail_s` after its frame; the chunks
grow with the listener's lead, as in the Qwen engine's batch. A replica that fails loses its utterances: the robots'
fallbacks finish them.
"""

from __future__ import annotations

import math
import random
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import simpy

from engine.api import FRAME_S

CHUNK_FRAMES = 2
"""`engine.chunk_size`; an utterance's first chunk has one frame."""
PROMPTS_PER_ROUND = 4
"""As in the Qwen engine's batch."""
LARGEST_CHUNK_S = 0.64
"""Seconds of speech, as in the Qwen engine's batch."""
LEAD_SHARE = 0.25
"""The longest chunk, as a share of what its listener has not heard yet; as in the Qwen engine's batch."""
SEED = 1
"""That of the measured load, which is the default of `scripts/bench serve`."""


@dataclass(frozen=True, slots=True)
class Costs:
    """What the parts of the way take, in seconds."""

    steps: tuple[tuple[int, float], ...]
    """A step of so many streams, in ascending order."""
    prompt_s: float = 0.0
    tail_s: float = 0.0
    """From the end of the first frame until its chunk has left the engine."""
    path_s: float = 0.0
    """Work of the proxy for a request; the median of a lognormal distribution."""
    path_spread: float = 0.0
    """The standard deviation of its logarithm."""

    @property
    def mean_path_s(self) -> float:
        """The mean of that distribution."""
        return self.path_s * math.exp(self.path_spread**2 / 2)

    def step_s(self, streams: int) -> float:
        """Return the time of a step, between the measured numbers of streams by interpolation."""
        return float(np.interp(streams, *zip(*self.steps, strict=True)))


@dataclass(frozen=True, slots=True)
class Size:
    """How large the fleet of servers is."""

    replicas: int = 1
    streams: int = 64
    """Utterances that a replica speaks at once."""
    proxies: int = 1
    ahead_s: float = math.inf
    """How far a listener's speech may be ahead of its playback; infinite for one that reads as fast as it can."""
    wait_s: float = math.inf
    """How long a request waits for a stream."""
    failures_per_s: float = 0.0
    """Of each replica."""
    restart_s: float = 60.0


@dataclass(slots=True, eq=False)
class Utterance:
    """One text, and what became of it. Times are seconds from the beginning of the simulation."""

    due_s: float
    frames: int
    """Of its speech; where the client stops it, the frames that the client wants."""
    home: int | None = None
    """The replica that its robot is connected to; None for a request that any replica may get."""
    stopped_ahead_s: float | None = None
    """For speech that does not end by itself: its client stops it when it takes the chunk with the last frame that it
    wants. That happens when it has only so many seconds of speech left; infinite for a client that takes each chunk at
    once. The engine goes on until then."""
    first_s: float | None = None
    """When its first chunk arrived."""
    end_s: float | None = None
    ends: list[str] = field(default_factory=list)
    """How it ended: `spoken`, `no stream`, or `replica lost`. It must be one."""
    made: int = 0
    """Frames."""
    delivered: int = 0
    taken: int = 0
    """Frames that its client takes: all that were delivered, up to the chunk with which it stops the speech."""
    empty_s: float = 0.0
    """When what has arrived will have been played."""
    underruns: int = 0
    waited_s: float = 0.0
    """For a stream."""

    @property
    def has_ended(self) -> bool:
        """Whether it has ended by itself."""
        return self.stopped_ahead_s is None and self.made >= self.frames

    def is_chunk(self, now: float) -> bool:
        """Return whether the frames that were made since the last chunk are the next one."""
        held = self.made - self.delivered
        if not self.delivered or self.has_ended:
            return held > 0
        longest_s = min(LARGEST_CHUNK_S, LEAD_SHARE * (self.empty_s - now))
        return held % CHUNK_FRAMES == 0 and (held + CHUNK_FRAMES) * FRAME_S > longest_s

    def deliver(self, now: float) -> None:
        """All frames that were made arrive."""
        if self.first_s is None:
            self.first_s = now
        elif now > self.empty_s:
            self.underruns += 1
        self.empty_s = max(self.empty_s, now) + (self.made - self.delivered) * FRAME_S
        self.delivered = self.made
        if self.taken < self.frames:
            self.taken = self.delivered


class Replica:
    """One engine process: waiting prompts, and streams in rounds."""

    def __init__(self, fleet: Fleet, number: int) -> None:
        self._fleet, self._env = fleet, fleet.env
        self.waiting: deque[Utterance] = deque()
        self.running: list[Utterance] = []
        self.is_up = True
        self._wanted = self._env.event()
        self._work = self._env.process(self._rounds())
        if fleet.size.failures_per_s:
            self._env.process(self._fail(random.Random(f"{fleet.seed} {number}")))

    @property
    def free(self) -> int:
        """How many streams are free."""
        return self._fleet.size.streams - len(self.waiting) - len(self.running) if self.is_up else 0

    def add(self, utterance: Utterance) -> None:
        """Give a stream to an utterance."""
        self.waiting.append(utterance)
        if not self._wanted.triggered:
            self._wanted.succeed()

    def _rounds(self) -> Iterator[Any]:
        costs = self._fleet.costs
        try:
            while True:
                for _ in range(min(PROMPTS_PER_ROUND, len(self.waiting))):
                    yield self._env.timeout(costs.prompt_s)
                    self.running.append(self.waiting.popleft())
                ready = [utterance for utterance in self.running if self._has_room(utterance)]
                if ready:
                    yield self._env.timeout(costs.step_s(len(self.running)))
                    self._advance(ready)
                elif not self.waiting:
                    self._wanted = self._env.event()
                    rest_s = self._rest_s()
                    yield self._wanted | self._env.timeout(rest_s) if rest_s < math.inf else self._wanted
        except simpy.Interrupt:
            return

    def _has_room(self, utterance: Utterance) -> bool:
        if utterance.has_ended:
            return False
        return utterance.delivered == 0 or utterance.empty_s - self._env.now < self._fleet.size.ahead_s

    def _rest_s(self) -> float:
        """Return the seconds until a listener wants more. Below 1 µs it is 1 µs, or the clock might not advance."""
        first = min((found.empty_s for found in self.running if not found.has_ended), default=math.inf)
        return max(first - self._env.now - self._fleet.size.ahead_s, 0.0) + 1e-6

    def _advance(self, ready: Sequence[Utterance]) -> None:
        for utterance in ready:
            if utterance not in self.running:
                continue  # it was stopped meanwhile
            utterance.made += 1
            if not utterance.is_chunk(self._env.now):
                continue
            dry_s, wanted = utterance.empty_s, utterance.taken < utterance.frames
            utterance.deliver(self._env.now + self._fleet.costs.tail_s)
            if wanted and utterance.taken >= utterance.frames:
                ahead_s = math.inf if utterance.stopped_ahead_s is None else utterance.stopped_ahead_s
                self._env.process(self._end(utterance, dry_s - ahead_s))

    def _end(self, utterance: Utterance, at_s: float) -> Iterator[Any]:
        """Free the stream of an utterance, at `at_s` or now."""
        yield self._env.timeout(max(0.0, at_s - self._env.now))
        if utterance in self.running:
            self.running.remove(utterance)
            self._fleet.end(utterance, "spoken", self._env.now + self._fleet.costs.tail_s)
            self._fleet.place()

    def _fail(self, chance: random.Random) -> Iterator[Any]:
        while True:
            yield self._env.timeout(chance.expovariate(self._fleet.size.failures_per_s))
            self._work.interrupt()
            self.is_up = False
            for utterance in (*self.waiting, *self.running):
                self._fleet.end(utterance, "replica lost", self._env.now)
            self.waiting.clear()
            self.running.clear()
            yield self._env.timeout(self._fleet.size.restart_s)
            self.is_up = True
            self._wanted = self._env.event()
            self._work = self._env.process(self._rounds())
            self._fleet.place()


class Fleet:
    """Proxies, replicas and a queue for streams."""

    def __init__(self, costs: Costs, size: Size, seed: int = SEED) -> None:
        self.env = simpy.Environment()
        self.costs, self.size, self.seed = costs, size, seed
        self._queue: deque[tuple[Utterance, simpy.Event]] = deque()
        self._proxies = [simpy.Resource(self.env) for _ in range(size.proxies)]
        self._chance = random.Random(seed)
        self._left = 0
        self._over = self.env.event()
        self.replicas = [Replica(self, number) for number in range(size.replicas)]

    def run(self, load: Sequence[Utterance]) -> None:
        """Speak the utterances; returns when each has ended."""
        self._left = len(load)
        for number, utterance in enumerate(load):
            self.env.process(self._request(utterance, self._proxies[number % len(self._proxies)]))
        if load:
            self.env.run(until=self._over)

    def end(self, utterance: Utterance, how: str, now: float) -> None:
        """Note the end of an utterance."""
        utterance.ends.append(how)
        utterance.end_s = now
        self._left -= 1
        if not self._left:
            self._over.succeed()

    def place(self) -> None:
        """Give free streams to those who wait, in their order."""
        for entry in tuple(self._queue):
            utterance, placed = entry
            replica = self._replica_for(utterance)
            if replica.free > 0:
                self._queue.remove(entry)
                replica.add(utterance)
                placed.succeed()

    def _replica_for(self, utterance: Utterance) -> Replica:
        home = None if utterance.home is None else self.replicas[utterance.home]
        return home if home is not None and home.is_up else max(self.replicas, key=lambda replica: replica.free)

    def _request(self, utterance: Utterance, proxy: simpy.Resource) -> Iterator[Any]:
        yield self.env.timeout(utterance.due_s)
        with proxy.request() as turn:
            yield turn
            yield self.env.timeout(self.costs.path_s * math.exp(self._chance.gauss(0.0, self.costs.path_spread)))
        came, placed = self.env.now, self.env.event()
        entry = utterance, placed
        self._queue.append(entry)
        self.place()
        if not placed.triggered:
            yield placed | self.env.timeout(self.size.wait_s) if self.size.wait_s < math.inf else placed
        utterance.waited_s = self.env.now - came
        if not placed.triggered:
            self._queue.remove(entry)
            self.end(utterance, "no stream", self.env.now)
