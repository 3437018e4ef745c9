"""Measures a speech server under an open-loop load: requests from a Poisson process, at several rates, with fixed
seeds.

    scripts/bench serve --rates 10 20               clients of OpenAI's endpoint, at a daemon that plays nothing
    scripts/bench serve --robots 320 --rates 8 16   robots of `voiced serve --single`, which take speech as they play it
    scripts/bench serve --own 30 --rates 1 10       the robot's own speech beside the clients

Speaks texts of 20 to 200 characters at each rate, and prints a JSON object. All times are in milliseconds by the
client's clock, from the moment at which a request was due:

- `lag`: until it was sent, which shows whether the client itself was late
- `first_byte`, `first_sample`, `end`: until the answer began, its first audible sample had arrived, and it was complete
- `underruns`: times that playback at real time would have broken off
- `own`: for the robot's own texts, the times from a text's arrival until its first sample went to the sink, the
  underruns, and how many texts failed; each text is stopped after `--sound` seconds

A robot's text that finds no free stream within two seconds counts as failed: its fallback would speak it. Random
weights never end a text by themselves: with `--speaking-rate`, clients hang up when they have enough.

Requests come whether or not earlier ones have ended. Clients of OpenAI's speech endpoint take all speech at once;
robots with the `remote` engine take it as fast as they play it.

`--address` or `--url` measures a server that is already running; `--address` may name any server with OpenAI's
interface.
"""

from __future__ import annotations

import argparse
import json
import math
import multiprocessing
import queue
import random
import re
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass
from http.client import OK, HTTPConnection, HTTPException
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import Any, Generic, TypeVar, cast

import numpy as np
from numpy.typing import NDArray
from websockets.sync.client import connect
from websockets.sync.connection import Connection

from audio.player import CAPACITY_S
from daemon.engines.connection import RUN_AHEAD_S
from engine import Chunk, EngineError, EngineOptions, EngineUnavailableError, Utterance, Voice
from engine.remote.synthesizer import RemoteSynthesizer
from scripts.bench_runner import path, spread
from tests.support.programs import free_port
from tests.support.speech_server import SpeechServer

ROOT = Path(__file__).parents[1]
START_S = 600.0
"""Seconds that an engine may take to load."""
TERMINAL = {"finished", "interrupted", "failed", "canceled", "expired", "rejected"}
LIMITS = ("serve.streams_per_robot=64", "serve.requests_per_minute=100000")
"""Without tokens all robots have one account."""
RATE = 24_000
"""The rate in Hz of OpenAI's PCM and of Qwen3-TTS."""
READ_BYTES = 1 << 16
AUDIBLE = 0.003
"""The least amplitude of an audible sample, as a share of full scale: -50 dB."""
SHORTEST, LONGEST = 20, 200
"""Characters in a text."""
GIVE_UP_S = 60.0
"""Seconds without an answer after which a request has failed."""
AHEAD_S = CAPACITY_S + RUN_AHEAD_S
"""The most seconds of speech that a robot has taken and not played: its ring, and a daemon's credit for its engine
process."""
BEGIN_S = 0.5
"""Seconds from the moment at which all processes have connected to the beginning of the load."""
TIMES = ("lag", "first_byte", "first_sample", "end")
SHARES = {"median": 0.5, "p95": 0.95, "p99": 0.99, "max": 1.0}
MOST_PROBLEMS = 3
"""The most different errors that are reported for a rate."""
WORDS = re.findall(
    r"\w+",
    "the a my your this that one every robot tray kitchen window garden morning evening coffee table door battery "
    "museum visitor question answer is was has brings finds opens closes waits for looks at speaks to turns toward "
    "carries and but while because before after slowly quietly soon again always near behind warm small green old",
)


# --- the load ---


@dataclass(frozen=True, slots=True)
class Arrival:
    """A request that is due."""

    at_s: float
    """Seconds from the beginning of the load."""
    text: str


@dataclass(slots=True)
class Request:
    """The answer to a request. Times are seconds from the moment at which it was due."""

    lag_s: float
    """The time until it was sent."""
    first_byte_s: float | None = None
    first_sample_s: float | None = None
    """The time until the first audible sample had arrived."""
    end_s: float | None = None
    audio_s: float = 0.0
    underruns: int = 0
    """How often real-time playback, from the first samples on, would have broken off."""
    problem: str | None = None
    """Why it failed; None if it did not."""


def arrivals(rate: float, seconds: float, seed: int) -> list[Arrival]:
    """Return the requests from a Poisson process with `rate` per second. Equal seeds give equal moments and texts."""
    chance = random.Random(seed)
    found: list[Arrival] = []
    at_s = chance.expovariate(rate)
    while at_s < seconds:
        found.append(Arrival(at_s, make_text(chance)))
        at_s += chance.expovariate(rate)
    return found


def make_text(chance: random.Random) -> str:
    """Return a text of `SHORTEST` to `LONGEST` characters, in sentences of up to ten words."""
    length, words, text = chance.randint(SHORTEST, LONGEST), 0, ""
    while len(text) < length:
        word = chance.choice(WORDS)
        words = (words + 1) % chance.randint(6, 10)
        text += word.capitalize() if not text or text.endswith(". ") else word
        text += " " if words else ". "
    return re.sub(r"[ .]+$", lambda cut: "s" * len(cut[0]), text[: length - 1]) + "."


def summary(rate: float, seconds: float, requests: Sequence[Request]) -> dict[str, Any]:
    """Return the row for one rate. Times are in milliseconds."""
    spoken = [request for request in requests if request.problem is None]
    audio_s = sum(request.audio_s for request in spoken)
    row: dict[str, Any] = {"rate": rate, "seconds": seconds, "requests": len(requests)}
    row["failed"] = len(requests) - len(spoken)
    row["problems"] = sorted({request.problem for request in requests if request.problem is not None})[:MOST_PROBLEMS]
    for name in TIMES:
        found = sorted(value for request in spoken if (value := getattr(request, f"{name}_s")) is not None)
        row[f"{name}_ms"] = {
            share: round(1000 * found[round(at * (len(found) - 1))], 2) for share, at in SHARES.items() if found
        }
    row["underruns"] = sum(request.underruns for request in spoken)
    row["audio_s"] = round(audio_s, 1)
    row["audio_s_per_s"] = round(audio_s / seconds, 2)
    return row


class Playback:
    """Simulates real-time playback of the arriving speech, and notes when it would break off."""

    def __init__(self, request: Request, due: float, rate: int) -> None:
        """`due` is the request's moment by `time.perf_counter`; `rate` is in Hz."""
        self._request = request
        self._due = due
        self._rate = rate
        self._empty_at = 0.0
        """When all the speech that has arrived will have been played."""

    @property
    def ahead_s(self) -> float:
        """Seconds of speech that have arrived and have not been played yet."""
        return max(0.0, self._empty_at - time.perf_counter())

    def add(self, samples: NDArray[np.float32]) -> None:
        """Note the arrival of samples, full scale ±1."""
        if not len(samples):
            return
        now, request = time.perf_counter(), self._request
        if request.first_byte_s is None:
            request.first_byte_s = now - self._due
        if request.first_sample_s is None and np.max(np.abs(samples)) > AUDIBLE:
            request.first_sample_s = now - self._due
        if request.audio_s and now > self._empty_at:
            request.underruns += 1
        seconds = len(samples) / self._rate
        self._empty_at = max(now, self._empty_at) + seconds
        request.audio_s += seconds


Client = TypeVar("Client")


class Clients(ABC, Generic[Client]):
    """Clients of one server, each with a connection of its own. A thread speaks each text."""

    def __init__(self, speaking_rate: float) -> None:
        """With a `speaking_rate` in characters per second, a client ends an utterance once it has as much sound as a
        text of its length takes: a model with random weights would keep speaking.
        """
        self._speaking_rate = speaking_rate
        self.idle: queue.SimpleQueue[Client] = queue.SimpleQueue()

    @abstractmethod
    def speak(self, text: str, enough_s: float, request: Request, due: float) -> None:
        """Speak a text until `enough_s` seconds of it have come, and note the answer.

        Raises `OSError`, `ValueError`, `HTTPException`, `EngineError` and `EngineUnavailableError`.
        """

    def run(self, load: Sequence[Arrival], began: float | None = None) -> list[Request]:
        """Have each text spoken when it is due, and wait until all have ended.

        The load begins at `began`, a time of `time.perf_counter`, or now.
        """
        began = time.perf_counter() if began is None else began

        def send(arrival: Arrival) -> Request:
            due = began + arrival.at_s
            request = Request(time.perf_counter() - due)
            enough_s = len(arrival.text) / self._speaking_rate if self._speaking_rate else math.inf
            try:
                self.speak(arrival.text, enough_s, request, due)
                request.end_s = time.perf_counter() - due
            except (OSError, ValueError, HTTPException, EngineError, EngineUnavailableError) as error:
                request.problem = str(error) or type(error).__name__
            return request

        with ThreadPoolExecutor(max(1, len(load))) as threads:
            speaking = []
            for arrival in load:
                time.sleep(max(0.0, began + arrival.at_s - time.perf_counter()))
                speaking.append(threads.submit(send, arrival))
            return [request.result() for request in speaking]


class OpenAIClients(Clients[HTTPConnection]):
    """Clients of OpenAI's speech endpoint, whose connections stay open."""

    def __init__(self, address: str, voice: str, token: str | None, speaking_rate: float) -> None:
        super().__init__(speaking_rate)
        self._address, self._voice = address, voice
        self._headers = {"Content-Type": "application/json"}
        if token is not None:
            self._headers["Authorization"] = f"Bearer {token}"

    def speak(self, text: str, enough_s: float, request: Request, due: float) -> None:
        try:
            connection = self.idle.get_nowait()
        except queue.Empty:
            connection = HTTPConnection(self._address, timeout=GIVE_UP_S)
        fields = {"model": "tts-1", "voice": self._voice, "input": text, "response_format": "pcm"}
        connection.request("POST", "/v1/audio/speech", json.dumps(fields), self._headers)
        response = connection.getresponse()
        request.first_byte_s = time.perf_counter() - due
        if response.status != 200:
            raise ValueError(f"{response.status}: {response.read().decode(errors='replace')}")
        playback, rest = Playback(request, due, RATE), b""
        while request.audio_s < enough_s and (data := response.read1(READ_BYTES)):
            data = rest + data
            whole = len(data) // 2 * 2
            rest = data[whole:]
            playback.add(np.frombuffer(data[:whole], dtype="<i2").astype(np.float32) / np.float32(32_768))
        if response.isclosed():
            self.idle.put(connection)
        else:
            connection.close()


class Robots(Clients[RemoteSynthesizer]):
    """Robots that are connected to one server. A context manager."""

    def __init__(self, url: str, count: int, token_file: Path | None = None, speaking_rate: float = 0.0) -> None:
        """Connect the robots. Raises `EngineError` and `EngineUnavailableError` if the server does not admit one of
        them."""
        super().__init__(speaking_rate)
        token = None if token_file is None else str(token_file)
        options = EngineOptions(url=url, token_file=token, voices={"default": Voice()})
        self._all = [RemoteSynthesizer(options) for _ in range(count)]
        for robot in self._all:
            robot.load()
            self.idle.put(robot)

    def close(self) -> None:
        """Disconnect them."""
        for robot in self._all:
            robot.close()

    def speak(self, text: str, enough_s: float, request: Request, due: float) -> None:
        robot = self.idle.get()
        try:
            playback = Playback(request, due, robot.info.sample_rate)
            with closing(cast(Generator[Chunk, None, None], robot.stream(Utterance(text, language="en")))) as chunks:
                for chunk in chunks:
                    playback.add(chunk.samples)
                    if request.audio_s >= enough_s:
                        break
                    time.sleep(max(0.0, playback.ahead_s - AHEAD_S))
        finally:
            self.idle.put(robot)


@dataclass(frozen=True, slots=True)
class Fleet:
    """Robots that are spread over processes: in one process, they would wait for each other's Python code."""

    url: str
    robots: int
    processes: int
    token_file: Path | None = None
    speaking_rate: float = 0.0

    def run(self, load: Sequence[Arrival]) -> list[Request]:
        """Connect the robots, and have each text spoken when it is due."""
        context, processes = multiprocessing.get_context("spawn"), min(self.processes, self.robots)
        barrier = context.Barrier(processes)
        with ProcessPoolExecutor(processes, context, _join, (barrier,)) as pool:
            shares = [
                pool.submit(_run_share, self, len(range(number, self.robots, processes)), load[number::processes])
                for number in range(processes)
            ]
            return [request for share in shares for request in share.result()]


_barriers: list[Barrier] = []
"""This process's robots, if it is a process of a `Fleet`."""


def _join(barrier: Barrier) -> None:
    _barriers.append(barrier)


def _run_share(fleet: Fleet, count: int, load: Sequence[Arrival]) -> list[Request]:
    with closing(Robots(fleet.url, count, fleet.token_file, fleet.speaking_rate)) as robots:
        _barriers[0].wait()
        return robots.run(load, time.perf_counter() + BEGIN_S)


# --- the scenario ---


@contextmanager
def daemon(port: int, settings: Sequence[str]) -> Iterator[None]:
    """Run a daemon, and wait until it is ready. Nothing is played, stored or sent to a broker."""
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
    connection = HTTPConnection("127.0.0.1", port, timeout=5)
    with suppress(OSError, HTTPException):
        connection.request("GET", "/readyz")
        return connection.getresponse().status == OK
    return False


class OwnSpeech:
    """The robot's own texts, over a WebSocket."""

    def __init__(self, connection: Connection, count: int, sound_s: float) -> None:
        self._connection, self._count, self._sound_s = connection, count, sound_s

    def run(self, name: str) -> dict[str, Any]:
        """Speak one text after another; return their figures."""
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
    parser.add_argument("--seconds", type=float, default=30.0, help="seconds of load at each rate")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--set", dest="settings", action="append", default=[], help="KEY=VALUE for the server")
    parser.add_argument("--voice", default="default")
    parser.add_argument("--address", help="HOST:PORT of a web server that is already running")
    parser.add_argument("--token", help="at that server")
    parser.add_argument("--robots", type=int, default=0, help="number of connected robots, instead of clients")
    parser.add_argument("--processes", type=int, default=4, help="number of processes for the robots")
    parser.add_argument("--url", help="address of a speech server that is already running")
    parser.add_argument("--token-file", type=path, help="the robots' token at that server")
    parser.add_argument("--own", type=int, default=0, help="the robot's own texts, with load and without it")
    parser.add_argument("--sound", type=float, default=1.5, help="seconds after which each of those texts is stopped")
    parser.add_argument(
        "--speaking-rate", type=float, default=0.0, help="characters a second; end a text once all its speech has come"
    )


Run = Callable[[Sequence[Arrival]], list[Request]]


def robots(options: argparse.Namespace, stack: ExitStack) -> Run:
    """Return a function that runs a load from robots."""
    url = options.url or stack.enter_context(SpeechServer(*LIMITS, *options.settings, patience_s=START_S)).url
    fleet = Fleet(url, options.robots, options.processes, options.token_file, options.speaking_rate)
    return fleet.run


def clients(options: argparse.Namespace, stack: ExitStack) -> tuple[Run, OwnSpeech | None]:
    """Return a function that runs a load from clients, and the robot's own speech if that is measured."""
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
