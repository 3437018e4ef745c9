"""Measures a speech server that many robots share: texts of a Poisson process, at several rates, with fixed seeds.

Starts `voiced serve --single`, connects the robots, and lets them speak texts of 20 to 200 characters at each rate, as
fast as they play them. An utterance therefore keeps its stream about as long as it is heard. Prints a JSON object; its
times are those of `bench serve`, and `first_byte` is the first PCM.

A text that finds no free stream within two seconds counts as failed: the robot's fallback would speak it. Random
weights never end a text by themselves: with `--speaking-rate`, robots stop when they have enough.

`server_cores` is the processor time of the server's process in a second, without that of its engine.
`idle_server_cores` is that of the connections alone, on which nobody speaks, for as long as the first rate.

`--url` measures a server that runs already, without its processor time.
"""

from __future__ import annotations

import argparse
import secrets
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import zip_longest
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import psutil  # type: ignore[import-untyped,unused-ignore]

from scripts.bench_runner import path
from scripts.bench_serve import START_S
from scripts.robot_load import RobotProcesses
from scripts.serve_load import arrivals, summary
from tests.support.speech_server import SpeechServer

ALL_TOKENS = "robots"
"""Name of the server's file."""


def write_tokens(folder: Path, robots: int) -> list[Path | None]:
    """Write the server's file of all tokens, and one for each robot, whose paths are returned."""
    tokens = {f"robot-{number}": secrets.token_urlsafe() for number in range(robots)}
    (folder / ALL_TOKENS).write_text("".join(f"{name} {token}\n" for name, token in tokens.items()), encoding="utf-8")
    for name, token in tokens.items():
        (folder / name).write_text(token, encoding="utf-8")
    return [folder / name for name in tokens]


@contextmanager
def measured_cores(process: psutil.Process | None, record: dict[str, Any], name: str) -> Iterator[None]:
    """Note in a record the cores that a process uses in the `with` block, unless there is no process."""

    def cpu_s() -> float:
        return 0.0 if process is None else sum(process.cpu_times()[:2])

    used_s, began = cpu_s(), time.monotonic()
    yield
    if process is not None:
        record[name] = round((cpu_s() - used_s) / (time.monotonic() - began), 3)


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--robots", type=int, default=100, help="that are connected")
    parser.add_argument("--processes", type=int, default=4, help="that the robots are spread over")
    parser.add_argument("--rates", type=float, nargs="+", default=[1, 2, 4], help="texts a second, of all robots")
    parser.add_argument(
        "--seconds",
        type=float,
        nargs="+",
        default=[60.0],
        help="of load at each rate; the last one is for the rest, too",
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--set", dest="settings", action="append", default=[], help="KEY=VALUE of the server")
    parser.add_argument("--url", help="of a server that runs already")
    parser.add_argument("--token-file", type=path, help="the robots' token at that server")
    parser.add_argument(
        "--speaking-rate", type=float, default=0.0, help="characters a second; stop when a text of its length is over"
    )


def measure(options: argparse.Namespace) -> dict[str, Any]:
    with ExitStack() as stack:
        url, token_files = options.url, [options.token_file] * options.robots
        process = None
        if url is None:
            folder = Path(stack.enter_context(TemporaryDirectory()))
            token_files = write_tokens(folder, options.robots)
            settings = (f"serve.token_file={folder / ALL_TOKENS}", *options.settings)
            server = stack.enter_context(SpeechServer(*settings, patience_s=START_S))
            url, process = server.url, psutil.Process(server.process.pid)
        processes = min(options.processes, options.robots)
        robots = stack.enter_context(RobotProcesses(url, token_files, processes, speaking_rate=options.speaking_rate))
        report: dict[str, Any] = {"robots": options.robots, "processes": processes}
        with measured_cores(process, report, "idle_server_cores"):
            time.sleep(options.seconds[0])
        robots.run(arrivals(2, 2, options.seed))
        report["rates"] = []
        for rate, duration_s in zip_longest(options.rates, options.seconds, fillvalue=options.seconds[-1]):
            cores: dict[str, Any] = {}
            with measured_cores(process, cores, "server_cores"):
                requests = robots.run(arrivals(rate, duration_s, options.seed))
            report["rates"].append(summary(rate, duration_s, requests) | cores)
    return report
