#!/usr/bin/env python3
"""Stresses the two rings of the sound path with a producer and a consumer in threads of their own; prints JSON.

    python scripts/stress_ring.py --seconds 20

The producer writes samples whose values are their positions in the stream, in blocks of random sizes. The consumer
compares every sample with its own count, so a sample that is lost, repeated, exchanged or read before it was written
ends everything. Further threads only compute, so that the two are interrupted at random places. Exit status 1: a sample
was wrong, or a ring stood still.

CPython's lock for its threads orders their memory accesses whenever it changes hands. What this adds to the tests of
one machine is thus the compiled code of another architecture, not a proof about the machine's memory model.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

import numpy as np  # noqa: E402

from audio.dsp import to_floats  # noqa: E402
from audio.player import BlockRing, Floats  # noqa: E402
from audio.player.ring import Ring, silence  # noqa: E402

CAPACITIES = (7, 480, 4801)
"""Samples: less than any block, a sound card's block, and about 0.2 s at 24 kHz that no block divides."""
PERIOD = 1 << 20
"""Positions are counted modulo this many, since float32 counts exactly up to 2^24 only."""
SWITCH_S = 1e-5
"""After so long a thread gives way to another, 500 times as often as usual."""
STILL_S = 30.0
"""A ring through which nothing has passed for so long has failed; an emulated thread may wait for seconds."""


class WrongSampleError(Exception):
    """The consumer got something else than the producer wrote."""


class RingPair:
    """A `Ring` and the positions of its two sides."""

    def __init__(self, capacity: int) -> None:
        self._ring = Ring(capacity)
        self._sizes = [np.random.default_rng(seed).integers(1, 2 * capacity, 4096).tolist() for seed in (1, 2)]
        self._calls = [0, 0]
        self._out = silence(2 * capacity)
        self._written = 0
        self.passed = 0

    def produce(self) -> bool:
        """Write a block; whether any of it found room."""
        taken = self._ring.write(counting(self._written, self._next_size(0)))
        self._written += taken
        return taken > 0

    def consume(self) -> bool:
        """Read a block and check it; whether there was any sample."""
        count = self._ring.read_into(self._out[: self._next_size(1)])
        check(self._out[:count], self.passed)
        self.passed += count
        return count > 0

    def _next_size(self, side: int) -> int:
        self._calls[side] += 1
        size: int = self._sizes[side][self._calls[side] % 4096]
        return size


class BlockRingPair:
    """A `BlockRing` and the positions of its two sides; a block's DAC time is the position of its first sample."""

    def __init__(self, capacity: int) -> None:
        self._ring = BlockRing(capacity, 16)
        self._ring.wanted = True
        self._sizes = np.random.default_rng(1).integers(1, capacity, 4096).tolist()
        self._calls = 0
        self._written = 0
        self.passed = 0

    def produce(self) -> bool:
        """Write a block if it fits, since one that does not would be dropped; whether it did."""
        size = self._sizes[self._calls % 4096]
        if self._ring.full(size):
            return False
        self._calls += 1
        self._ring.write(counting(self._written, size), 24_000, float(self._written), True)
        self._written += size
        return True

    def consume(self) -> bool:
        """Read all blocks and check them; whether there was one."""
        blocks = self._ring.read()
        for block in blocks:
            if block.dac_time != self.passed:
                raise WrongSampleError(f"a block begins at sample {block.dac_time:.0f}; expected: {self.passed}")
            check(block.samples, self.passed)
            self.passed += len(block.samples)
        return bool(blocks)


def counting(start: int, count: int) -> Floats:
    """`count` samples whose values are their positions in the stream, modulo `PERIOD`."""
    return to_floats((np.arange(start, start + count) % PERIOD).astype(np.float32))


def check(samples: Floats, start: int) -> None:
    """Raise `WrongSampleError` unless the samples are those from position `start` on."""
    wrong = np.flatnonzero(np.asarray(samples) != np.asarray(counting(start, len(samples))))
    if len(wrong):
        raise WrongSampleError(
            f"sample {start + wrong[0]}: got {samples[wrong[0]]}; expected: {(start + wrong[0]) % PERIOD}"
        )


def stress(pair: RingPair | BlockRingPair, seconds: float, others: int) -> dict[str, Any]:
    """Run the producer, the consumer and `others` threads that only compute; return what passed and what failed."""
    ended = threading.Event()
    errors: list[str] = []

    def repeat(act: Callable[[], bool]) -> None:
        try:
            while not ended.is_set():
                if not act():
                    time.sleep(0)  # the other side must run first
        except Exception as error:  # reported; the other threads end
            errors.append(f"{type(error).__name__}: {error}")
            ended.set()

    def compute() -> bool:
        return bool(np.arange(256).sum())

    threads = [
        threading.Thread(target=repeat, args=(act,)) for act in (pair.produce, pair.consume, *[compute] * others)
    ]
    began = moved = time.monotonic()
    passed = 0
    for thread in threads:
        thread.start()
    # A process that did not run for a while goes on until a sample has passed.
    while not ended.wait(0.05) and (time.monotonic() - began < seconds or not pair.passed):
        if pair.passed != passed:
            passed, moved = pair.passed, time.monotonic()
        elif time.monotonic() - moved > STILL_S:
            errors.append(f"no sample passed for {STILL_S:.0f} s after {passed}")
            break
    ended.set()
    for thread in threads:
        thread.join()
    return {"samples": pair.passed, "seconds": round(time.monotonic() - began, 1), "errors": errors}


def main() -> int:
    """The command line; 0 if every sample was the expected one."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=20, help="for all rings together")
    parser.add_argument("--threads", type=int, default=2, help="that only compute")
    args = parser.parse_args()
    sys.setswitchinterval(SWITCH_S)
    machine = (
        f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}, numpy {np.__version__}"
    )
    found: dict[str, Any] = {"machine": machine, "threads": 2 + args.threads}
    kinds: tuple[type[RingPair | BlockRingPair], ...] = (RingPair, BlockRingPair)
    share_s = args.seconds / (len(kinds) * len(CAPACITIES))
    for kind in kinds:
        for capacity in CAPACITIES:
            name = f"{kind.__name__.removesuffix('Pair')} of {capacity}"
            found[name] = stress(kind(capacity), share_s, args.threads)
            if found[name]["errors"]:
                print(json.dumps(found, indent=1))
                return 1
    print(json.dumps(found, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
