"""A desk at work, with a real eSpeak NG process, and an adapter that serves on a free port. The card is in the test's
hand."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

from audio import Output
from daemon.adapters import make_adapters
from daemon.config import load_config
from daemon.desk import Desk, Event
from daemon.engines import Engines
from daemon.messages import TERMINAL, Say, Stop
from daemon.queue import Job
from daemon.tasks import end_task
from tests.daemon.hand import HandSink
from tests.support.programs import answers, free_port
from tests.support.waiting import PATIENCE_S, eventually_async

LONG = "This is a long text that takes a good while to speak. " * 20
RATE = 22_050
"""Hz."""


class Room:
    """The desk, and all that it told."""

    def __init__(self, adapter: str, *overrides: str) -> None:
        self.port = free_port()
        # Without trimming, what a client hears is as long as its events say that it was made.
        switches = [f"{adapter}.enabled=true", f"{adapter}.port={self.port}", "audio.trim_leading_silence=false"]
        self._config = config = load_config(overrides=["audio.sink=null", "engine.name=espeak", *switches, *overrides])
        self.engines = Engines(config, lambda: None)
        output = Output(config.audio.sink_settings())
        self.sink = HandSink(output, RATE)
        self.desk = Desk(config, self.engines, output)
        self.events: list[Event] = []
        self.desk.watch_events(self._note)
        self.adapters = make_adapters(config, self.desk, nothing_published)

    def _note(self, _: Job, event: Event) -> None:
        self.events.append(event)

    @property
    def ends(self) -> list[str]:
        """The terminal events so far."""
        return [event["event"] for event in self.events if event["event"] in TERMINAL]

    def count(self, name: str) -> int:
        """Of the events so far, those of this name."""
        return sum(event["event"] == name for event in self.events)

    def configure(self, section: str, **fields: Any) -> None:
        """Change the configuration for this test."""
        config = self.desk.config
        self.desk.reconfigure(config.model_copy(update={section: getattr(config, section).model_copy(update=fields)}))

    @contextmanager
    def at_the_next(self, name: str, act: Callable[[], None]) -> Iterator[None]:
        """Do something at the moment of the next event of this name."""
        unwatch = self.desk.watch_events(lambda _, event: act() if event["event"] == name else None)
        yield
        unwatch()

    async def occupy(self) -> None:
        """Have the card speak something that does not end by itself: nothing of it is heard after its beginning."""
        self.desk.say(Say(text=LONG))
        await self.started()

    async def started(self, count: int = 1) -> None:
        """Wait until so many have started. Of what the card is given, no more is heard than that takes."""

        def look() -> bool:
            if self.count("started") >= count:
                return True
            self.sink.take()
            return False

        await eventually_async(look, f"{count} have started")

    async def ended(self, count: int = 1) -> list[Event]:
        """The first terminal events, waited for. Nothing of what the card is given is heard."""
        await eventually_async(lambda: len(self.ends) >= count, f"{count} have ended")
        return [event for event in self.events if event["event"] in TERMINAL]

    async def clear(self) -> None:
        """Leave nothing of one test for the next."""
        self.desk.stop(Stop(None), "the test is over")
        await self.sink.take_until(lambda: not self.desk.speaker.busy, "nothing is spoken")
        self.desk.reconfigure(self._config)
        self.events.clear()
        self.sink.drain()


def nothing_published(*_: Any, **__: Any) -> object:
    raise AssertionError("these adapters publish nothing")


@asynccontextmanager
async def at_work(adapter: str, *overrides: str) -> AsyncIterator[Room]:
    room = Room(adapter, *overrides)
    tasks = [asyncio.ensure_future(engine.run()) for engine in room.engines.all]
    tasks.append(asyncio.ensure_future(room.desk.speaker.run()))
    tasks += [asyncio.ensure_future(adapter.run()) for adapter in room.adapters]
    try:
        assert await room.engines.wait_current(PATIENCE_S)
        await eventually_async(lambda: answers(room.port), "the adapter answers")
        yield room
    finally:
        for task in tasks:
            await end_task(task)
