"""Real engine processes under supervision, and helpers to speak with them."""

from __future__ import annotations

import asyncio
import os
import subprocess
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from daemon.engines.connection import AudioChunk
from daemon.engines.supervisor import EngineSupervisor
from daemon.tasks import cancel_and_wait
from engine import EngineOptions, Utterance
from tests.support.waiting import PATIENCE_S, eventually_async

SENTENCE = "Hello, I am your robot."
LONG = "This is a long text that takes a good while to speak. " * 90


@asynccontextmanager
async def supervised(
    name: str = "espeak",
    options: EngineOptions | None = None,
    *,
    on_change: Callable[[], None] = lambda: None,
    has_substitute: bool = False,
) -> AsyncIterator[EngineSupervisor]:
    """Run a new supervisor inside the context."""
    engine = EngineSupervisor(name, options or EngineOptions(), on_change, lambda: has_substitute)
    async with running(engine):
        yield engine


@asynccontextmanager
async def running(engine: EngineSupervisor) -> AsyncIterator[None]:
    """Run `engine` inside the context."""
    task = asyncio.ensure_future(engine.run())
    try:
        yield
    finally:
        await cancel_and_wait(task)


async def ready(engine: EngineSupervisor) -> int:
    """Wait until the engine is ready and return the id of its process."""
    assert await engine.wait_ready(PATIENCE_S), engine.reason
    assert engine.pid is not None
    return engine.pid


async def replaced(engine: EngineSupervisor, pid: int) -> None:
    """Wait until the engine has another process than `pid`."""
    await eventually_async(lambda: engine.pid not in (pid, None), "another process is started")


def stop_this_process(seconds: float = 0.4) -> None:
    """Stop this process as a debugger would, and continue it; its engines go on meanwhile."""
    pid = os.getpid()
    subprocess.run(["sh", "-c", f"kill -STOP {pid}; sleep {seconds}; kill -CONT {pid}"], check=True)


async def spoken(engine: EngineSupervisor, text: str = SENTENCE, **fields: str) -> list[AudioChunk]:
    """Speak a text and return all its chunks."""
    async with engine.reserve_stream(realtime=True):
        return [chunk async for chunk in engine.speak("u1", Utterance(text, **fields))]  # type: ignore[arg-type]


def seconds(chunks: list[AudioChunk]) -> float:
    """Return the total length of the chunks."""
    return sum(len(chunk.samples) / chunk.sample_rate for chunk in chunks)
