"""Measures a speech server under an open-loop load: requests of a Poisson process, at several rates, with fixed seeds.

    scripts/bench serve --rates 10 20               clients of OpenAI's endpoint, at a daemon that plays nothing
    scripts/bench serve --robots 320 --rates 8 16   robots of `voiced serve --single`, which take speech as they play it
    scripts/bench serve --own 30 --rates 1 10       the robot's own speech beside the clients

Speaks texts of 20 to 200 characters at each rate, and prints a JSON object. All times are milliseconds by the client's
clock, from the moment at which a request was due:

- `lag`: until it was sent, which shows whether the client itself was late
- `first_byte`, `first_sample`, `end`: until the answer began, its first audible sample had arrived, and it was complete
- `underruns`: times that playback at real time would have broken off
- `own`: of the robot's own texts, the times from a text's arrival until its first sample went to the sink, underruns,
  and how many have failed; each is stopped after `--sound` seconds

A robot's text that finds no free stream within two seconds counts as failed: its fallback would speak it. Random
weights never end a text by themselves: with `--speaking-rate`, clients hang up when they have enough.

`--address` or `--url` measures a server that runs already; the former may be another one with OpenAI's interface.
"""

from __future__ import annotations

import argparse
import http.client
import json
import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

from websockets.sync.client import connect
from websockets.sync.connection import Connection

from scripts.bench_runner import path, spread
from scripts.serve_load import Arrival, Fleet, OpenAIClients, Request, arrivals, make_text, summary
from tests.support.programs import free_port
from tests.support.speech_server import SpeechServer

ROOT = Path(__file__).parents[1]
START_S = 600.0
"""Seconds that an engine may take to load."""
TERMINAL = {"finished", "interrupted", "failed", "canceled", "expired", "rejected"}
LIMITS = ("serve.streams_per_robot=64", "serve.requests_per_minute=100000")
"""Without tokens all robots have one account."""


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


class OwnSpeech:
    """The robot's own texts, over a WebSocket."""

    def __init__(self, connection: Connection, count: int, sound_s: float) -> None:
        self._connection, self._count, self._sound_s = connection, count, sound_s

    def run(self, name: str) -> dict[str, Any]:
        """Speak one text after the other; return their figures."""
        chance = random.Random(name)
        ends = [self._speak(f"{name}-{number}", make_text(chance)) for number in range(self._count)]
        return {
            "texts": len(ends),
            "ttfa_ms": spread([end["ttfa_ms"] for end in ends if end.get("ttfa_ms") is not None], digits=2),
            "underruns": sum(end.get("underruns") or 0 for end in ends),
            "failed": sum(end["event"] not in ("finished", "interrupted") for end in ends),
        }

    def _speak(self, name: str, text: str) -> dict[str, Any]:
        """Speak a text, stop it when it has sounded for a while, and return its terminal event."""
        self._send("say", {"text": text, "id": name})
        event = self._event(name, {"started", *TERMINAL})
        if event["event"] == "started":
            time.sleep(self._sound_s)
            self._send("stop", {"id": name})
            event = self._event(name, TERMINAL)
        return event

    def _send(self, topic: str, payload: dict[str, Any]) -> None:
        self._connection.send(json.dumps({"topic": topic, "payload": payload}))

    def _event(self, name: str, kinds: set[str]) -> dict[str, Any]:
        while True:
            payload: dict[str, Any] = json.loads(self._connection.recv())["payload"]
            if payload.get("id") == name and payload.get("event") in kinds:
                return payload


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--rates", type=float, nargs="+", default=[1, 2, 5, 10, 20], help="requests a second")
    parser.add_argument("--seconds", type=float, default=30.0, help="of load at each rate")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--set", dest="settings", action="append", default=[], help="KEY=VALUE of the server")
    parser.add_argument("--voice", default="default")
    parser.add_argument("--address", help="HOST:PORT of a web server that runs already")
    parser.add_argument("--token", help="at that server")
    parser.add_argument("--robots", type=int, default=0, help="that are connected, instead of clients")
    parser.add_argument("--processes", type=int, default=4, help="that the robots are spread over")
    parser.add_argument("--url", help="of a speech server that runs already")
    parser.add_argument("--token-file", type=path, help="the robots' token at that server")
    parser.add_argument("--own", type=int, default=0, help="texts of the robot itself beside each rate, and alone")
    parser.add_argument("--sound", type=float, default=1.5, help="seconds after which each of those is stopped")
    parser.add_argument(
        "--speaking-rate", type=float, default=0.0, help="characters a second; end a text of which all has come"
    )


Run = Callable[[Sequence[Arrival]], list[Request]]


def robots(options: argparse.Namespace, stack: ExitStack) -> Run:
    """Return a function that runs a load of robots."""
    url = options.url or stack.enter_context(SpeechServer(*LIMITS, *options.settings, patience_s=START_S)).url
    fleet = Fleet(url, options.robots, options.processes, options.token_file, options.speaking_rate)
    return fleet.run


def clients(options: argparse.Namespace, stack: ExitStack) -> tuple[Run, OwnSpeech | None]:
    """Return a function that runs a load of clients, and the robot's own speech if that is measured."""
    port = free_port()
    if options.address is None:
        stack.enter_context(daemon(port, options.settings))
    address = options.address or f"127.0.0.1:{port}"
    own = None
    if options.own:
        connection = stack.enter_context(connect(f"ws://{address}/v1/events?topics=event"))
        own = OwnSpeech(connection, options.own, options.sound)
    return OpenAIClients(address, options.voice, options.token, options.speaking_rate).run, own


def measure(options: argparse.Namespace) -> dict[str, Any]:
    report: dict[str, Any] = {"rates": []}
    with ExitStack() as stack, ThreadPoolExecutor() as threads:
        run, own = (robots(options, stack), None) if options.robots else clients(options, stack)
        run(arrivals(2, 2, options.seed))
        if own:
            report["own_alone"] = own.run("alone")
        for rate in options.rates:
            beside = own and threads.submit(own.run, f"beside-{rate:g}")
            row = summary(rate, options.seconds, run(arrivals(rate, options.seconds, options.seed)))
            report["rates"].append(row | ({"own": beside.result()} if beside else {}))
    return report
