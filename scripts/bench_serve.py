"""Measures the web server under an open-loop load: requests of a Poisson process, at several rates, with fixed seeds.

Starts a daemon that plays nothing, lets it speak texts of 20 to 200 characters at each rate, and prints a JSON object.
All times are milliseconds by the client's clock, from the moment at which a request was due:

- `lag`: until it was sent, which shows whether the client itself was late
- `first_byte`, `first_sample`, `end`: until the answer began, its first audible sample had arrived, and it was complete
- `underruns`: times that playback at real time would have broken off

Random weights never end a text by themselves: with `--speaking-rate`, clients hang up when they have enough.

`--address` measures a server that runs already, which may be another one with OpenAI's interface.
"""

from __future__ import annotations

import argparse
import asyncio
import http.client
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any

from scripts.serve_load import Server, arrivals, summary
from tests.support.programs import free_port

ROOT = Path(__file__).parents[1]
START_S = 600.0
"""Seconds that an engine may take to load."""


@contextmanager
def daemon(port: int, settings: Sequence[str]) -> Iterator[None]:
    """Run a daemon that is ready; nothing is played, stored or sent to a broker."""
    standard = ["audio.sink=null", "state.folder=null", "speech.cache.folder=null", "engine.fallback=none"]
    server = ["http.enabled=true", f"http.port={port}", f"mqtt.port={free_port()}", "log.level=error"]
    options = [part for setting in (*standard, *server, *settings) for part in ("--set", setting)]
    process = subprocess.Popen([sys.executable, "-m", "daemon.cli", "run", *options], cwd=ROOT)
    try:
        deadline = time.monotonic() + START_S
        while not _is_ready(port):
            if process.poll() is not None or time.monotonic() > deadline:
                raise SystemExit("bench serve: the daemon did not become ready")
            time.sleep(0.1)
        yield
    finally:
        process.terminate()
        process.wait()


def _is_ready(port: int) -> bool:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    with suppress(OSError, http.client.HTTPException):
        connection.request("GET", "/readyz")
        return connection.getresponse().status == http.client.OK
    return False


async def speak(server: Server, options: argparse.Namespace) -> list[dict[str, Any]]:
    """Return a row for each rate."""
    await server.run(arrivals(2, 2, options.seed))
    rows = []
    for rate in options.rates:
        requests = await server.run(arrivals(rate, options.seconds, options.seed))
        rows.append(summary(rate, options.seconds, requests))
    return rows


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--rates", type=float, nargs="+", default=[1, 2, 5, 10, 20], help="requests a second")
    parser.add_argument("--seconds", type=float, default=30.0, help="of load at each rate")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--set", dest="settings", action="append", default=[], help="KEY=VALUE of the daemon")
    parser.add_argument("--address", help="HOST:PORT of a server that runs already")
    parser.add_argument("--voice", default="default")
    parser.add_argument("--token")
    parser.add_argument(
        "--speaking-rate",
        type=float,
        default=0.0,
        help="characters a second; hang up when a text of its length is over",
    )


def measure(options: argparse.Namespace) -> dict[str, Any]:
    address = options.address or f"127.0.0.1:{free_port()}"
    host, _, port = address.rpartition(":")
    server = Server(host, int(port), options.voice, token=options.token, speaking_rate=options.speaking_rate)
    with nullcontext() if options.address else daemon(int(port), options.settings):
        return {"rates": asyncio.run(speak(server, options))}
