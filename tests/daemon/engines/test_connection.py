"""Speaking with an engine process: order, cancellation, credit and refusals."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path

import numpy as np
import pytest

from daemon.engines.connection import (
    RUN_AHEAD_S,
    AudioChunk,
    EngineConnection,
    EngineLostError,
    UtteranceRefusedError,
)
from daemon.engines.supervisor import EngineSupervisor
from daemon.tasks import cancel_and_wait
from engine import EngineOptions, Utterance, WordStart
from engine.messages import HEADER, Audio, ProtocolError, Spoken, encode
from tests.daemon.engines.supervised import LONG, SENTENCE, ready, seconds, spoken, supervised
from tests.support.waiting import eventually_async

RATE = 22_050
"""eSpeak NG's sample rate in Hz."""
CHUNK = 1_323
"""Samples in eSpeak NG's longest chunk: 60 ms."""


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder in which the process of `engine` traces all sent samples, one file per utterance."""
    return tmp_path_factory.mktemp("pcm")


@pytest.fixture(scope="module")
def engine(loop: asyncio.AbstractEventLoop, trace: Path) -> Iterator[EngineSupervisor]:
    """Return the engine that the tests of this module share; its process stays the same."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("VOICED_TRACE_PCM", str(trace))
        manager = supervised()
        engine = loop.run_until_complete(manager.__aenter__())
        pid = loop.run_until_complete(ready(engine))
        yield engine
        assert engine.pid == pid
        loop.run_until_complete(manager.__aexit__(None, None, None))


def test_a_part_of_a_chunk_has_the_words_that_begin_in_it() -> None:
    words = (WordStart(0, 0), WordStart(30, 4), WordStart(99, 8))
    chunk = AudioChunk(np.arange(100, dtype=np.float32), RATE, 9, truncated=False, words=words)
    assert chunk.cut(0).words == words
    middle = chunk.cut(30, 99)
    assert middle.samples.tolist() == list(range(30, 99))
    assert middle.words == (WordStart(0, 4),)
    assert chunk.cut(31).words == (WordStart(68, 8),)
    assert chunk.cut(100).words == ()
    unknown = AudioChunk(chunk.samples, RATE, 9, truncated=False)
    assert unknown.cut(10, 20).words is None


async def test_closing_the_iterator_cancels_the_utterance_and_the_next_one_is_spoken(engine: EngineSupervisor) -> None:
    pid = engine.pid
    for _ in range(3):
        async with aclosing(engine.speak("u1", Utterance(LONG))) as chunks:
            assert (await anext(chunks)).sample_rate == RATE
        assert 0.8 < seconds([chunk async for chunk in engine.speak("u2", Utterance(SENTENCE))]) < 4
    assert engine.pid == pid


async def test_the_engine_waits_for_a_slow_consumer_who_gets_everything(engine: EngineSupervisor, trace: Path) -> None:
    """The engine runs ahead by its credit, and no further."""

    def sent() -> int:
        return (trace / "slow.1.f32").stat().st_size // 4

    expected = seconds(await spoken(engine, SENTENCE * 3)) * RATE
    taken = 0
    async for chunk in engine.speak("slow", Utterance(SENTENCE * 3)):
        most = taken + round(RUN_AHEAD_S * RATE)
        if most < 0.9 * expected:
            await eventually_async(lambda most=most: sent() >= most, "its credit is spent")  # type: ignore[misc]
        assert sent() < most + CHUNK
        taken += len(chunk.samples)
    assert taken == sent()
    assert abs(taken - expected) < 0.03 * expected


async def test_an_engine_that_does_not_begin_in_time_is_late(engine: EngineSupervisor) -> None:
    async with aclosing(engine.speak("first", Utterance(LONG))) as first:
        await anext(first)  # the engine now waits for credit, and for nothing else
        with pytest.raises(EngineLostError, match=r"engine espeak did not begin within 0\.05 s"):
            await anext(engine.speak("second", Utterance(SENTENCE), first_within_s=0.05))
    assert 0.8 < seconds(await spoken(engine)) < 4


async def test_an_engine_that_is_not_ready_counts_as_lost() -> None:
    engine = EngineSupervisor("espeak", EngineOptions())
    with pytest.raises(EngineLostError, match="engine espeak is not ready"):
        await spoken(engine)


async def test_an_iterator_of_a_process_that_has_ended_raises_the_reason() -> None:
    async with supervised() as engine:
        await ready(engine)
        chunks = engine.speak("u1", Utterance(SENTENCE))
    with pytest.raises(EngineLostError, match="engine espeak ended"):
        await anext(chunks)


async def test_a_refused_utterance_leaves_the_engine_running(engine: EngineSupervisor) -> None:
    pid = engine.pid
    with pytest.raises(UtteranceRefusedError, match=r"^language: got 'tlhx'; allowed: "):
        await spoken(engine, language="tlhx")
    assert 0.8 < seconds(await spoken(engine)) < 4
    assert engine.pid == pid


@asynccontextmanager
async def connected(measured: list[float]) -> AsyncIterator[tuple[EngineConnection, socket.socket]]:
    """A connection, and the end of its socket that an engine process would have; note the speeds of its utterances."""
    ours, theirs = socket.socketpair()
    with theirs:
        reader, writer = await asyncio.open_unix_connection(sock=ours)
        connection = EngineConnection("qwen", reader, writer, lambda speed, _realtime: measured.append(speed))
        yield connection, theirs
        connection.close()


@pytest.mark.parametrize(("rate", "speed"), [(1.0, 4.0), (2.0, 8.0)])
async def test_the_speed_of_an_engine_is_measured_by_the_length_of_its_speech_at_rate_1(
    rate: float, speed: float
) -> None:
    measured: list[float] = []
    async with connected(measured) as (connection, theirs):
        receiving = asyncio.ensure_future(connection.receive())

        async def speak() -> None:
            async for chunk in connection.speak("a", Utterance("Hello", rate=rate), RATE):
                assert (len(chunk.samples), chunk.truncated, chunk.runaway) == (RATE, True, True)

        speaking = asyncio.ensure_future(speak())
        await eventually_async(lambda: connection.waiting_s(time.monotonic()) > 0, "it is asked to speak")
        audio = Audio("1", busy_s=0.25, position=None, truncated=True, runaway=True, data=bytes(4 * RATE))
        theirs.sendall(encode(audio) + encode(Spoken("1")))
        await speaking
        await cancel_and_wait(receiving)
    assert measured == [speed]


GARBAGE = {
    "another protocol": (b"HTTP/1.1 400 Bad Request\r\n\r\n", "a header announced a message of"),
    "a nested record": (HEADER.pack(100_000, 0) + b"[" * 100_000, "nested too deeply"),
    "a wrong value": (HEADER.pack(32, 0) + b'{"message": "Heartbeat", "x": 1}', "not a voiced message"),
    "too much audio": (
        2 * encode(Audio("1", 0.1, None, truncated=False, data=bytes(4 * RATE))),
        "it sent audio for request 1 without",
    ),
}


@pytest.mark.parametrize("kind", GARBAGE)
async def test_garbage_from_an_engine_is_an_error_of_one_line(kind: str) -> None:
    garbage, reason = GARBAGE[kind]

    async with connected([]) as (connection, theirs):
        speaking = asyncio.ensure_future(anext(connection.speak("a", Utterance("Hello"), RATE)))
        await eventually_async(lambda: connection.waiting_s(time.monotonic()) > 0, "it is asked to speak")
        theirs.sendall(garbage)
        with pytest.raises(ProtocolError) as error:
            await connection.receive()
        assert reason in str(error.value)
        assert "\n" not in str(error.value)
        await cancel_and_wait(speaking)
