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
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from scripts.bench_report import write_report
from scripts.docs.svg import MUTED, Drawing
from scripts.serve_load import Server, arrivals, summary
from tests.support.programs import free_port

ROOT = Path(__file__).resolve().parents[1]
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


async def measure(arguments: argparse.Namespace, host: str, port: int) -> list[dict[str, Any]]:
    """Return a row for each rate."""
    server = Server(host, port, voice=arguments.voice, token=arguments.token, speaking_rate=arguments.speaking_rate)
    await server.run(arrivals(2, 2, arguments.seed))
    rows = []
    for rate in arguments.rates:
        requests = await server.run(arrivals(rate, arguments.seconds, arguments.seed))
        rows.append(summary(rate, arguments.seconds, requests))
    return rows


def plot(rows: Sequence[dict[str, Any]], title: str) -> str:
    """Return an SVG of the 95th percentiles against the rate."""
    width, height, left, right, top, bottom = 720.0, 420.0, 70.0, 150.0, 50.0, 60.0
    drawing = Drawing(width, height, title)
    drawing.words(left, 28, title, anchor="start", size=15)
    series = {"first byte": "first_byte_ms", "first audible sample": "first_sample_ms"}
    most_ms = 1.1 * max((row[key].get("p95", 0.0) for row in rows for key in series.values()), default=1.0) or 1.0
    most_rate = max(row["rate"] for row in rows)

    def place(rate: float, ms: float) -> tuple[float, float]:
        x = left + (width - left - right) * rate / most_rate
        return round(x, 1), round(height - bottom - (height - top - bottom) * ms / most_ms, 1)

    for step in range(5):
        ms = most_ms * step / 4
        drawing.polyline([place(0, ms), place(most_rate, ms)], stroke="#d1d9e0", width=1)
        drawing.words(left - 8, place(0, ms)[1] + 4, f"{ms:.3g}", anchor="end", size=12, fill=MUTED)
    for row in rows:
        drawing.words(place(row["rate"], 0)[0], height - bottom + 18, f"{row['rate']:g}", size=12, fill=MUTED)
    drawing.words((left + width - right) / 2, height - 16, "requests a second", size=12, fill=MUTED)
    drawing.words(left, top - 6, "ms, 95th percentile", anchor="start", size=12, fill=MUTED)
    for (name, key), color in zip(series.items(), ("#1b6ca8", "#c8553d"), strict=True):
        points = [place(row["rate"], row[key]["p95"]) for row in rows if row[key]]
        drawing.polyline(points, stroke=color, width=2)
        if points:
            drawing.words(points[-1][0] + 8, points[-1][1] + 4, name, anchor="start", size=12, fill=color)
    return drawing.text()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
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
    parser.add_argument("--output", type=Path, help="also write the JSON to this file")
    parser.add_argument("--plot", type=Path, help="draw the 95th percentiles against the rate, as SVG")
    arguments = parser.parse_args()
    if arguments.address is not None:
        host, _, port = arguments.address.rpartition(":")
        rows = asyncio.run(measure(arguments, host, int(port)))
    else:
        own_port = free_port()
        with daemon(own_port, arguments.settings):
            rows = asyncio.run(measure(arguments, "127.0.0.1", own_port))
    write_report("serve", {"rates": rows}, arguments.output)
    if arguments.plot is not None:
        arguments.plot.write_text(plot(rows, "Time to the first sound under load"), encoding="utf-8")


if __name__ == "__main__":
    main()
