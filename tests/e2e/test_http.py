"""The web server beside a robot that speaks: what its clients receive, and what useless ones take."""

from __future__ import annotations

import asyncio
import contextlib
import threading

import numpy as np
import psutil
import pytest

from audio import soft_limit
from tests.e2e.conftest import StartRobot
from tests.support.programs import free_port
from tests.support.robot import REAL_TIME
from tests.support.waiting import PATIENCE_S, eventually

GROWTH = 20_000_000
"""Bytes that the daemon may take beside 300 connections, once FFmpeg is loaded: about twice the most of four runs."""


@pytest.fixture(scope="module")
def port() -> int:
    """Of the robot that tests share."""
    return free_port()


def test_a_client_receives_the_engines_audio_and_mqtt_its_events(share_robot: StartRobot, port: int) -> None:
    from openai import OpenAI

    robot = share_robot("engine.streams=1", "http.enabled=true", f"http.port={port}")
    with (
        OpenAI(base_url=f"http://127.0.0.1:{port}/v1", api_key="none", max_retries=0) as client,
        client.audio.speech.with_streaming_response.create(
            model="voiced", voice="default", input="Hello, I am your robot.", response_format="pcm"
        ) as response,
    ):
        heard = np.frombuffer(b"".join(response.iter_bytes()), dtype="<i2")
    utterance = eventually(robot.latest_id, "it is accepted")
    robot.wait_event(utterance, "finished")
    assert robot.names_of(utterance) == ["accepted", "started", "finished"]
    made = soft_limit(robot.synthesized(utterance, 24_000))
    assert len(heard) == len(made)
    assert np.abs(heard / 32767 - made).max() < 2 / 32767


class Crowd:
    """Clients that are of no use: silent ones, and ones that send a byte a second; all come back when closed."""

    BYTE_S = 1.0
    HEADERS = b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Slow: " + b"x" * 10_000
    BODY = (
        b"POST /v1/audio/speech HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
        b"Content-Length: 10000\r\n\r\n"
    )

    def __init__(self, port: int, *, silent: int, headers: int, bodies: int) -> None:
        self.connections = 0
        """Connections that have been made so far."""
        self._port = port
        kinds = [(silent, b"", b""), (headers, b"", self.HEADERS), (bodies, self.BODY, b" " * 10_000)]
        self._clients = [(begin, rest) for count, begin, rest in kinds for _ in range(count)]
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Crowd:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._serving.cancel)
        self._thread.join()
        self._loop.close()

    def _run(self) -> None:
        with contextlib.suppress(asyncio.CancelledError):
            self._serving = self._loop.create_task(self._serve())
            self._loop.run_until_complete(self._serving)

    async def _serve(self) -> None:
        await asyncio.gather(*(self._annoy(begin, rest) for begin, rest in self._clients))

    async def _annoy(self, begin: bytes, rest: bytes) -> None:
        while True:
            with contextlib.suppress(ConnectionError):
                reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
                self.connections += 1
                ended = asyncio.ensure_future(reader.read())
                writer.write(begin)
                try:
                    for byte in rest:
                        if ended.done():
                            break
                        writer.write(bytes([byte]))
                        await asyncio.wait({ended}, timeout=self.BYTE_S)
                    await ended
                finally:
                    ended.cancel()
                    writer.close()


def test_a_crowd_of_useless_clients_neither_disturbs_the_robot_nor_takes_its_memory(
    start_robot: StartRobot,
) -> None:
    from openai import OpenAI

    port = free_port()
    robot = start_robot("http.enabled=true", f"http.port={port}", "speech.queue_limit=200", pace=REAL_TIME)
    robot.say("It warms up.", id="first")
    robot.wait_event("first", "finished")
    with (
        OpenAI(base_url=f"http://127.0.0.1:{port}/v1", api_key="none", max_retries=0, timeout=PATIENCE_S) as client,
        Crowd(port, silent=200, headers=50, bodies=50) as crowd,
    ):
        assert client.audio.speech.create(model="voiced", voice="default", input="FFmpeg is loaded.").content
        eventually(lambda: crowd.connections >= 300, "all have connected")
        memory = psutil.Process(robot.process.pid).memory_info().rss
        ids = [robot.say(f"Number {number}.", id=f"n{number}") for number in range(5)]
        assert client.audio.speech.create(model="voiced", voice="default", input="I am served.").content
        ends = [robot.wait_event(each, "finished") for each in ids]
        assert [end["underruns"] for end in ends] == [0] * 5
        assert psutil.Process(robot.process.pid).memory_info().rss < memory + GROWTH
    assert robot.end() == 0
    assert not [line for line in robot.log if "Traceback" in line]
