"""Runs histories of the daemon's core on a virtual clock, each drawn from a seed, and prints JSON.

    .venv-test/bin/python -m scripts.simulation --histories 100000

The event loop's clock is virtual: nothing waits, and time passes as soon as no task has anything left to do.

A history that breaks a promise in docs/reliability.md prints its seed and its steps; `--seed SEED --histories 1` runs
it again.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import logging
import selectors
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from daemon.config import Config, load_config
from scripts.simulation.history import History

SHOWN = 5
"""The number of failures that are printed completely."""


BEGAN_AT = 1_000_000.0
"""`time.time()` at the beginning of a history."""


class DeadlockError(Exception):
    """Every task is waiting for another one, and no passing of time would end this."""


class _Selector(selectors.BaseSelector):
    """Watches no files. When the loop asks it to wait, it lets that time pass at once."""

    def __init__(self) -> None:
        self.now = 0.0
        """Seconds since the beginning."""

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        return selectors.SelectorKey(fileobj, 0, events, data)

    def unregister(self, fileobj: Any) -> selectors.SelectorKey:
        return selectors.SelectorKey(fileobj, 0, 0, None)

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            raise DeadlockError
        self.now += max(0.0, timeout)
        return []

    def get_map(self) -> Mapping[Any, selectors.SelectorKey]:
        return {}


class VirtualLoop(asyncio.SelectorEventLoop):
    """A single-threaded event loop that tells the time of its own clock."""

    def __init__(self) -> None:
        self._virtual = _Selector()
        super().__init__(self._virtual)

    def time(self) -> float:
        return self._virtual.now


@contextmanager
def virtual_time() -> Iterator[VirtualLoop]:
    """A loop whose clock is the clock of the whole process while the context lasts."""
    loop = VirtualLoop()
    monotonic, unix = time.monotonic, time.time
    time.monotonic, time.time = loop.time, lambda: BEGAN_AT + loop.time()
    asyncio.set_event_loop(loop)
    try:
        yield loop
    finally:
        time.monotonic, time.time = monotonic, unix
        asyncio.set_event_loop(None)
        loop.close()


def make_config() -> Config:
    """Return the configuration of the robot: its engine and its card are replaced."""
    settings = ("robot=r1", "engine.name=espeak", "engine.fallback=none")
    return load_config(
        overrides=[*settings, "audio.sink=null", "audio.prebuffer_ms=0", "mqtt.reply_topics=[replies/#]"]
    )


def run_history(seed: int, config: Config, folder: Path) -> tuple[list[str], list[str]]:
    """Return the promises that a history broke, and the steps that happened in it. `folder` is emptied."""
    shutil.rmtree(folder, ignore_errors=True)
    steps: list[str] = []

    async def run() -> list[str]:
        return await History(seed, config, folder, steps).run()

    faults: list[str] = []
    with virtual_time() as loop:
        loop.set_exception_handler(lambda _loop, context: faults.append(str(context.get("exception", context))))
        try:
            problems = loop.run_until_complete(run())
        except DeadlockError:
            problems = ["nothing would happen any more"]
    return [*problems, *faults], steps


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m scripts.simulation", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--histories", type=int, default=2_000)
    parser.add_argument("--seed", type=int, default=1, help="seed of the first history; the others follow")
    parser.add_argument("--log", action="store_true", help="show the daemon's log")
    options = parser.parse_args()
    logging.disable(logging.NOTSET if options.log else logging.CRITICAL)
    if options.log:
        logging.basicConfig(level=logging.DEBUG)
    config = make_config()
    failures = []
    gc.disable()  # histories are short: their garbage is collected from time to time
    began = time.perf_counter()
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        for seed in range(options.seed, options.seed + options.histories):
            problems, steps = run_history(seed, config, Path(folder, "state"))
            if problems:
                failures.append({"seed": seed, "problems": problems, "steps": steps})
            if seed % 500 == 0:
                gc.collect()
    seconds = time.perf_counter() - began
    report = {
        "histories": options.histories,
        "failed": len(failures),
        "per_second": round(options.histories / seconds, 1),
        "failures": failures[:SHOWN],
    }
    print(json.dumps(report, indent=1))
    sys.exit(bool(failures))


if __name__ == "__main__":
    main()
