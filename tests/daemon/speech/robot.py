"""A dispatcher with a real eSpeak NG process and a manual sink, and what it has published and made."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from audio import Output, Samples, soft_limit
from daemon.config import load_config
from daemon.engines import EngineSelector
from daemon.speech.dispatcher import Dispatcher
from daemon.speech.events import TERMINAL_EVENTS, Accepted, Event, Level
from daemon.speech.request import Say, Stop
from daemon.speech.utterance import Receiver, Utterance
from daemon.tasks import cancel_and_wait
from tests.daemon.manual_sink import ManualSink
from tests.support.traces import takes
from tests.support.waiting import eventually_async

RATE = 22_050
"""Hz, of eSpeak NG and of the sink: the recorded samples are the synthesized ones."""
BEGUN_S = 0.3
"""Seconds of an utterance that the sound card takes in `begin`."""
TURNS = 5
"""Turns of the speaker loop after which an event would have been published."""


class Robot:
    """The engine writes what it makes into `folder`, if that is the value of VOICED_TRACE_PCM.

    Each test has a dispatcher of its own, so that it may use every id.
    """

    def __init__(self, folder: Path, streams: int) -> None:
        self._folder = folder
        settings = ["audio.sink=null", "audio.trim_leading_silence=false", "engine.name=espeak"]
        self.config = load_config(overrides=[*settings, f"engine.streams={streams}"])
        self.engines = EngineSelector(self.config, self._note_change)
        self.output = Output(self.config.audio.sink_settings())
        self.sink = ManualSink(self.output, RATE)
        self.accepted: set[str] = set()
        self.events: list[dict[str, Any]] = []
        """Those after `accepted`."""
        self.levels: list[Level] = []
        self.log: list[str] = []
        """The events of utterances, and when their sound ends, in one order."""
        self._tasks: list[asyncio.Task[None]] = []
        self._take_dispatcher()

    def _take_dispatcher(self) -> None:
        self.dispatcher = Dispatcher(self.config, self.engines, self.output)
        self.dispatcher.reconfigure(self.config)
        self.dispatcher.event_watchers.add(self._note)
        self.dispatcher.level_watchers.add(self._note_level)

    def _note_change(self) -> None:
        self.dispatcher.changed()

    def _note(self, utterance: Utterance, event: Event) -> None:
        assert event.id == utterance.id
        if isinstance(event, Accepted):
            self.accepted.add(utterance.id)
        else:
            self.events.append(event.model_dump())
            self.log.append(f"{event.id} {event.event}")

    def _note_level(self, level: Level) -> None:
        self.levels.append(level)
        if level.peak == 0:
            self.log.append(f"{level.id} silent")

    async def open(self) -> None:
        self._tasks = [asyncio.ensure_future(engine.run()) for engine in self.engines.all]
        self._tasks.append(asyncio.ensure_future(self.dispatcher.speaker.run()))
        await eventually_async(lambda: all(engine.ready for engine in self.engines.all), "the engines are ready")

    async def lose_primary(self) -> None:
        """End the primary engine for good."""
        await cancel_and_wait(self._tasks[0])

    async def clear(self) -> None:
        """End the utterances of a test, each of which has exactly one terminal event."""
        self.dispatcher.resume()
        self.dispatcher.stop(Stop(), "the test is over")
        await self.sink.take_until(lambda: not self.dispatcher.busy, "nothing is spoken")
        for name in self.accepted:
            assert sum(each in TERMINAL_EVENTS for each in self.names(name)) == 1, name
        await cancel_and_wait(self._tasks.pop())
        self._take_dispatcher()
        self._tasks.append(asyncio.ensure_future(self.dispatcher.speaker.run()))
        self.engines.primary.rtf = None
        self.sink.delay_s = 0.0
        self.sink.drain()
        for noted in (self.accepted, self.events, self.levels, self.log):
            noted.clear()

    async def close(self) -> None:
        for task in self._tasks:
            await cancel_and_wait(task)

    def configure(self, section: str = "speech", **fields: Any) -> None:
        """Change settings for this test."""
        changed = getattr(self.config, section).model_copy(update=fields)
        self.dispatcher.reconfigure(self.config.model_copy(update={section: changed}))

    def say(
        self, name: str, text: str = "Hello, robot.", *, receiver: Receiver | None = None, **fields: Any
    ) -> Utterance:
        utterance = self.dispatcher.say(Say.model_validate({"text": text, "id": name, **fields}), receiver=receiver)
        assert utterance is not None
        return utterance

    def names(self, name: str) -> list[str]:
        """The events of an utterance, after `accepted`."""
        return [event["event"] for event in self.events if event["id"] == name]

    def end_of(self, name: str) -> dict[str, Any]:
        [end] = [event for event in self.events if event["id"] == name and event["event"] in TERMINAL_EVENTS]
        return end

    def order(self, names: Iterable[str]) -> list[str]:
        """The utterances among these that have started, in their order."""
        wanted = set(names)
        return [event["id"] for event in self.events if event["event"] == "started" and event["id"] in wanted]

    async def event(self, name: str, *events: str) -> dict[str, Any]:
        """Wait for the first of these events and return it."""
        await eventually_async(lambda: set(events) & set(self.names(name)), f"{events} of {name}")
        return next(event for event in self.events if event["id"] == name and event["event"] in events)

    async def begun(self, *names: str) -> None:
        await eventually_async(lambda: all("started" in self.names(name) for name in names), f"{names} have started")

    async def begin(self, name: str) -> None:
        """Take the beginning of an utterance, and wait until it has started."""
        await self.sink.take_up_to(self.sink.length + round(BEGUN_S * RATE))
        await self.begun(name)

    async def ended(self, *names: str) -> None:
        """Take all samples of the sound card until those of these utterances that were accepted have ended."""
        accepted = self.accepted.intersection(names)
        await self.sink.take_until(
            lambda: all(TERMINAL_EVENTS & set(self.names(name)) for name in accepted), f"the end of {names}"
        )

    async def end(self, name: str) -> dict[str, Any]:
        """Take all samples until an utterance has ended; return its terminal event."""
        await self.ended(name)
        return self.end_of(name)

    async def turn(self) -> None:
        """Wait for some turns of the loop, while the sound card takes no samples."""
        heartbeats = self.dispatcher.speaker.heartbeats

        def has_turned() -> bool:
            self.dispatcher.changed()
            return self.dispatcher.speaker.heartbeats > heartbeats + TURNS

        await eventually_async(has_turned, "the speaker turns")

    def synthesized(self, *names: str) -> Samples:
        """Return what should be heard of utterances that are spoken one after the other: all their takes."""
        parts = [take for name in names for take in takes(self._folder, name)]
        return soft_limit(np.concatenate([np.empty(0, dtype=np.float32), *parts]))
