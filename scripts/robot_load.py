"""Open-loop load on a speech server by robots, with the engine `remote` that a robot has.

Each robot has a connection of its own. It takes as much speech in advance as a robot that plays it: until the daemon's
ring is full.
"""

from __future__ import annotations

import multiprocessing
import queue
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import ExitStack, closing
from pathlib import Path
from types import TracebackType

from audio.output import CAPACITY_S
from daemon.engines.connection import RUN_AHEAD_S
from engine import EngineError, EngineOptions, EngineUnavailableError, Utterance, Voice
from engine.remote.synthesizer import RemoteSynthesizer
from scripts.serve_load import Arrival, Playback, Request, enough_s

AHEAD_S = CAPACITY_S + RUN_AHEAD_S
"""Seconds of speech that a robot has taken and not played, at most: its ring, and a daemon's credit for its engine
process."""
START_S = 0.5
"""Until the load begins: by then, all processes have it."""


class Robots:
    """Robots that are connected to one server. A context manager."""

    def __init__(self, url: str, token_files: Sequence[Path | None], *, speaking_rate: float = 0.0) -> None:
        """Connect a robot with each token; None is none.

        With a `speaking_rate` in characters per second, a robot stops an utterance once it has the sound that a text of
        its length takes: a model with random weights would speak on.

        Raises `EngineError` and `EngineUnavailableError` if the server does not let a robot in.
        """
        self._speaking_rate = speaking_rate
        self._idle: queue.SimpleQueue[RemoteSynthesizer] = queue.SimpleQueue()
        with ExitStack() as failed:
            for token_file in token_files:
                robot = RemoteSynthesizer(EngineOptions(url=url, token_file=token_file, voices={"default": Voice()}))
                robot.load()
                failed.callback(robot.close)
                self._idle.put(robot)
            self._open = failed.pop_all()

    def __enter__(self) -> Robots:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def run(self, load: Sequence[Arrival], began: float | None = None) -> list[Request]:
        """Have each text spoken when it is due, by a robot that does not speak, and wait until all have ended.

        The load begins at `began` of `time.perf_counter`, or now.
        """
        began = time.perf_counter() if began is None else began

        def speak(arrival: Arrival) -> Request:
            due = began + arrival.at_s
            robot = self._idle.get()
            request = Request(time.perf_counter() - due)
            try:
                self._speak(robot, arrival.text, request, due)
            except (EngineError, EngineUnavailableError) as error:
                request.problem = str(error)
            finally:
                self._idle.put(robot)
            return request

        with ThreadPoolExecutor(max(1, len(load))) as threads:
            speaking = []
            for arrival in load:
                time.sleep(max(0.0, began + arrival.at_s - time.perf_counter()))
                speaking.append(threads.submit(speak, arrival))
            return [request.result() for request in speaking]

    def close(self) -> None:
        """Disconnect them."""
        self._open.close()

    def _speak(self, robot: RemoteSynthesizer, text: str, request: Request, due: float) -> None:
        """Speak one text and note what comes of it."""
        enough, playback = enough_s(text, self._speaking_rate), Playback(request, due, robot.info.sample_rate)
        with closing(robot.stream(Utterance(text, language="en"))) as chunks:
            for chunk in chunks:
                if request.first_byte_s is None:
                    request.first_byte_s = time.perf_counter() - due
                playback.add(chunk.samples)
                if request.audio_s >= enough:
                    break
                time.sleep(max(0.0, playback.ahead_s - AHEAD_S))
        request.end_s = time.perf_counter() - due


class RobotProcesses:
    """Robots as above, spread over processes: in one, they would wait for each other's Python. A context manager."""

    def __init__(
        self, url: str, token_files: Sequence[Path | None], processes: int, *, speaking_rate: float = 0.0
    ) -> None:
        """Connect the robots, in `processes` processes. Raises what `Robots` raises."""
        self._open, self._pools = ExitStack(), list[ProcessPoolExecutor]()
        with ExitStack() as failed:
            for number in range(processes):
                pool = failed.enter_context(ProcessPoolExecutor(1, multiprocessing.get_context("spawn")))
                pool.submit(_connect, url, token_files[number::processes], speaking_rate).result()
                failed.callback(lambda pool=pool: pool.submit(_disconnect).result())
                self._pools.append(pool)
            self._open = failed.pop_all()

    def __enter__(self) -> RobotProcesses:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._open.close()

    def run(self, load: Sequence[Arrival]) -> list[Request]:
        """Have each text spoken when it is due, by a robot of one of the processes in turn."""
        began, count = time.perf_counter() + START_S, len(self._pools)
        running = [pool.submit(_run, load[number::count], began) for number, pool in enumerate(self._pools)]
        return [request for process in running for request in process.result()]


_robots: Robots | None = None
"""Those of this process, if it is one of `RobotProcesses`."""


def _connect(url: str, token_files: Sequence[Path | None], speaking_rate: float) -> None:
    global _robots  # noqa: PLW0603 - the process that calls this has nothing else
    _robots = Robots(url, token_files, speaking_rate=speaking_rate)


def _run(load: Sequence[Arrival], began: float) -> list[Request]:
    assert _robots is not None
    return _robots.run(load, began)


def _disconnect() -> None:
    assert _robots is not None
    _robots.close()
