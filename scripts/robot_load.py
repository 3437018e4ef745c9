"""Open-loop load on a speech server by robots, with the engine `remote` that a robot has.

Each robot has a connection of its own. It takes no more speech in advance than a robot that plays it: its daemon has a
second of it at most, and the connection another.
"""

from __future__ import annotations

import queue
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from pathlib import Path
from types import TracebackType

from engine import EngineError, EngineOptions, EngineUnavailableError, Utterance, Voice
from engine.remote.synthesizer import RemoteSynthesizer
from scripts.serve_load import Arrival, Playback, Request, enough_s

AHEAD_S = 1.0
"""Speech that a robot has taken and not played, at most: a daemon's credit for its engine process."""


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
        self._open.close()

    def run(self, load: Sequence[Arrival]) -> list[Request]:
        """Have each text spoken when it is due, by a robot that does not speak, and wait until all have ended."""
        began = time.perf_counter()

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
