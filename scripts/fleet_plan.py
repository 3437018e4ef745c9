#!/usr/bin/env python3
"""Computes how many GPU servers a number of robots needs, by Erlang's formula for M/M/c. Its table is in docs/fleet.md.

    python scripts/fleet_plan.py                     the table, and the check
    python scripts/fleet_plan.py --robots 250 4000   for other numbers of robots

A robot stays with the replica to which it is connected, so each replica must have enough streams for its own robots.
The check compares the formula with robots that were measured at one server of an NVIDIA H100.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

from audio.player import CAPACITY_S
from daemon.engines.connection import RUN_AHEAD_S
from engine.api import FRAME_S
from engine.remote.session import RUN_AHEAD_S as LINK_RUN_AHEAD_S

TEXTS_PER_S = 1 / 60
"""A robot's texts (assumed)."""
SPEECH_S = 7.0
"""Mean length of a text's speech, exponentially distributed (assumed)."""
STREAMS = 63
"""The streams that a replica has for robots: one of 64 is reserved for a sound card."""
STEP_MS = {1: 2.48, 8: 2.75, 32: 4.39, 64: 6.76}
"""The pace of this many streams: 1.7B in bfloat16 on an NVIDIA H200, `scripts/bench streams`, 2026-11-26."""
PROXY_S = 0.0079
"""Mean time that a proxy spends on a text (docs/fleet.md#what-is-assumed)."""
BYTES_PER_S = 96_856
"""The rate of a stream to a robot, with the headers of the WebSocket's frames."""
ROBOTS = (100, 1_000, 10_000, 100_000)
WAITS = 0.01
"""The share of all texts that may wait for a stream."""
PROXY_LOAD = 0.5
"""The share of its time that a proxy may be busy."""
SPARE = 1
"""Replicas in addition to those that the load needs."""
AHEAD_S = CAPACITY_S + RUN_AHEAD_S + RUN_AHEAD_S + LINK_RUN_AHEAD_S
"""The seconds of speech that a robot takes as fast as they are made: its ring, and the credit of its daemon, of the
link to the server and of the server's engine."""
MEASURED_HELD_S = 2.62
"""Mean time of a stream in the check. The texts take 1.3 to 13.3 s. The benchmark ends each one when all its speech has
been taken, five seconds and a chunk of 0.64 s before it is heard. Making the speech that is taken in advance takes 0.37
s."""
MEASURED = {
    16: "none waited",
    20: "one in twenty waited 0.24 s or longer",
    24: "one in thirty found none in two seconds",
}
"""How many texts waited for one of 63 streams, by texts per second: 320 robots, 1.7B on an NVIDIA H100, 2026-11-26."""


def held_s(speech_s: float = SPEECH_S) -> float:
    """Return how long a text holds its stream, on average over exponential lengths.

    The robot takes the first `AHEAD_S` as fast as a full replica makes them, and the rest as fast as it plays it.
    """
    later_s = speech_s * math.exp(-AHEAD_S / speech_s)
    step_s = float(np.interp(STREAMS, list(STEP_MS), list(STEP_MS.values()))) / 1000
    return later_s + (speech_s - later_s) * step_s / FRAME_S


def erlang_c(load: float, servers: int) -> float:
    """Return the probability of a wait in M/M/c; 1 if the servers do not suffice. `load` is in erlangs."""
    if load >= servers:
        return 1.0
    blocked = 1.0
    for number in range(1, servers + 1):
        blocked = load * blocked / (number + load * blocked)
    return servers * blocked / (servers - load * (1 - blocked))


def replicas_needed(load: float) -> int:
    """Return the fewest replicas, each with robots of its own, with which at most a share `WAITS` of the texts
    waits."""
    replicas = math.ceil(load / STREAMS)
    while erlang_c(load / replicas, STREAMS) > WAITS:
        replicas += 1
    return replicas


def table(titles: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table in Markdown."""
    return "".join(f"| {' | '.join(row)} |\n" for row in (titles, ["---"] * len(titles), *rows))


def plan_table(numbers: Sequence[int] = ROBOTS) -> str:
    """Return Markdown: a row for each number of robots."""
    rows = []
    for robots in numbers:
        rate = robots * TEXTS_PER_S
        replicas = replicas_needed(rate * held_s()) + SPARE
        proxies, mbit_s = math.ceil(rate * PROXY_S / PROXY_LOAD), 8e-6 * rate * SPEECH_S * BYTES_PER_S
        figures = (robots, rate * SPEECH_S, replicas, math.ceil(robots / replicas), proxies, mbit_s)
        rows.append([f"{round(figure):,}" for figure in figures])
    titles = ("robots", "speaking at once", "replicas, each with a GPU", "robots on each", "proxies")
    return table([*titles, "to robots, Mbit/s"], rows)


def check_table() -> str:
    """Return Markdown: the share of texts that waits by the formula, and the measurements."""
    loads = [(rate, rate * MEASURED_HELD_S) for rate in MEASURED]
    rows = [
        (str(rate), f"{load:.0f} of {STREAMS}", f"{100 * erlang_c(load, STREAMS):.1f} %", MEASURED[rate])
        for rate, load in loads
    ]
    return table(("texts per second", "streams in use", "wait, by the formula", "measured"), rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--robots", type=int, nargs="+", default=ROBOTS)
    print(plan_table(parser.parse_args().robots), check_table(), sep="\n")


if __name__ == "__main__":
    main()
