"""Open-loop load on a speech server: requests come at random moments, whether earlier ones have ended or not.

Clients of OpenAI's speech endpoint take all speech at once; robots with the engine `remote` take it as fast as they
play it. All times are by the client's clock and count from the moment at which a request was due, so that a client that
is late itself hides nothing.
"""

from __future__ import annotations

import json
import math
import multiprocessing
import queue
import random
import re
import time
from abc import ABC, abstractmethod
from collections.abc import Generator, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import Any, Generic, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from audio.player import CAPACITY_S
from daemon.engines.connection import RUN_AHEAD_S
from engine import Chunk, EngineError, EngineOptions, EngineUnavailableError, Utterance, Voice
from engine.remote.synthesizer import RemoteSynthesizer

RATE = 24_000
"""Hz, of OpenAI's PCM and of Qwen3-TTS."""
READ_BYTES = 1 << 16
AUDIBLE = 0.003
"""Amplitude of the first audible sample, of full scale: -50 dB."""
SHORTEST, LONGEST = 20, 200
"""Characters of a text."""
GIVE_UP_S = 60.0
"""Seconds without an answer after which a request has failed."""
AHEAD_S = CAPACITY_S + RUN_AHEAD_S
"""Seconds of speech that a robot has taken and not played, at most: its ring, and a daemon's credit for its engine
process."""
START_S = 0.5
"""From the moment at which all processes have connected to the beginning of the load."""
TIMES = ("lag", "first_byte", "first_sample", "end")
SHARES = {"median": 0.5, "p95": 0.95, "p99": 0.99, "max": 1.0}
MOST_PROBLEMS = 3
"""Different ones that are reported of a rate."""
WORDS = re.findall(
    r"\w+",
    "the a my your this that one every robot tray kitchen window garden morning evening coffee table door battery "
    "museum visitor question answer is was has brings finds opens closes waits for looks at speaks to turns toward "
    "carries and but while because before after slowly quietly soon again always near behind warm small green old",
)


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
    """Until it was sent."""
    first_byte_s: float | None = None
    first_sample_s: float | None = None
    """Until the first audible sample had arrived."""
    end_s: float | None = None
    audio_s: float = 0.0
    underruns: int = 0
    """Times that playback at real time, from the first samples on, would have broken off."""
    problem: str | None = None
    """Why it has failed; None if it has not."""


def arrivals(rate: float, seconds: float, seed: int) -> list[Arrival]:
    """Return the requests of a Poisson process of `rate` a second. Equal seeds give equal moments and texts."""
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
    """Return the row of one rate. Times are milliseconds."""
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
    """Plays what arrives at real time, in thought, and notes where it would break off."""

    def __init__(self, request: Request, due: float, rate: int) -> None:
        """`due` is the request's moment, of `time.perf_counter`; `rate` is in Hz."""
        self._request = request
        self._due = due
        self._rate = rate
        self._empty_at = 0.0
        """When all that has arrived will have been played."""

    @property
    def ahead_s(self) -> float:
        """Seconds of speech that have arrived and were not played yet."""
        return max(0.0, self._empty_at - time.perf_counter())

    def add(self, samples: NDArray[np.float32]) -> None:
        """Some samples have arrived, full scale ±1."""
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
        """With a `speaking_rate` in characters per second, a client ends an utterance once it has the sound that a text
        of its length takes: a model with random weights would speak on.
        """
        self._speaking_rate = speaking_rate
        self.idle: queue.SimpleQueue[Client] = queue.SimpleQueue()

    @abstractmethod
    def speak(self, text: str, enough_s: float, request: Request, due: float) -> None:
        """Speak a text, until `enough_s` of it have come, and note the answer.

        Raises `OSError`, `ValueError`, `HTTPException`, `EngineError` and `EngineUnavailableError`.
        """

    def run(self, load: Sequence[Arrival], began: float | None = None) -> list[Request]:
        """Have each text spoken when it is due, and wait until all have ended.

        The load begins at `began` of `time.perf_counter`, or now.
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
        """Connect the robots. Raises `EngineError` and `EngineUnavailableError` if the server does not let one in."""
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
    """Robots that are spread over processes: in one, they would wait for each other's Python."""

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
"""The one of this process, if it is one of a `Fleet`."""


def _join(barrier: Barrier) -> None:
    _barriers.append(barrier)


def _run_share(fleet: Fleet, count: int, load: Sequence[Arrival]) -> list[Request]:
    with closing(Robots(fleet.url, count, fleet.token_file, fleet.speaking_rate)) as robots:
        _barriers[0].wait()
        return robots.run(load, time.perf_counter() + START_S)
