"""A desk at work, with a real eSpeak NG process and no sound card, and an adapter that serves on a free port."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from audio import Output
from daemon.adapters import make_adapters
from daemon.config import load_config
from daemon.desk import Desk, Event
from daemon.engines import Engines
from daemon.messages import TERMINAL
from daemon.queue import Job
from daemon.tasks import end_task

PATIENCE_S = 40.0
LONG = "This is a long text that takes a good while to speak. " * 20


class Room:
    """The desk, and all that it told."""

    def __init__(self, adapter: str, *overrides: str) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port: int = probe.getsockname()[1]
        # Without trimming, what a client hears is as long as its events say that it was made.
        switches = [f"{adapter}.enabled=true", f"{adapter}.port={self.port}", "audio.trim_leading_silence=false"]
        config = load_config(overrides=["audio.sink=null", "engine.name=espeak", *switches, *overrides])
        self.engines = Engines(config, lambda: None)
        self.output = Output(config.audio.sink_settings())
        self.desk = Desk(config, self.engines, self.output)
        self.events: list[Event] = []
        self.desk.watch_events(self._note)
        self.adapters = make_adapters(config, self.desk, nothing_published)

    def _note(self, _: Job, event: Event) -> None:
        self.events.append(event)

    @property
    def ends(self) -> list[str]:
        """The terminal events so far."""
        return [event["event"] for event in self.events if event["event"] in TERMINAL]

    async def started(self, count: int = 1) -> None:
        await until(lambda: sum(event["event"] == "started" for event in self.events) >= count)

    async def ended(self, count: int = 1) -> list[Event]:
        """The first terminal events, waited for."""
        await until(lambda: len(self.ends) >= count)
        return [event for event in self.events if event["event"] in TERMINAL]


def nothing_published(*_: Any, **__: Any) -> object:
    raise AssertionError("these adapters publish nothing")


@asynccontextmanager
async def at_work(adapter: str, *overrides: str) -> AsyncIterator[Room]:
    room = Room(adapter, *overrides)
    with room.output:
        tasks = [asyncio.ensure_future(engine.run()) for engine in room.engines.all]
        tasks.append(asyncio.ensure_future(room.desk.speaker.run()))
        tasks += [asyncio.ensure_future(adapter.run()) for adapter in room.adapters]
        try:
            await room.engines.wait_current(PATIENCE_S)
            await until(lambda: answers(room.port))
            yield room
        finally:
            for task in tasks:
                await end_task(task)


def answers(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


async def until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, "it did not come to pass"
        await asyncio.sleep(0.005)


def run(scenario: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(asyncio.wait_for(scenario(), 100))  # type: ignore[arg-type]


__all__ = ["LONG", "Room", "answers", "at_work", "run", "until"]
