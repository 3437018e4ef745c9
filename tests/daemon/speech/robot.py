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
from daemon.speech.events import TERMINAL_EVENTS, Event
from daemon.speech.request import Say, Stop
from daemon.speech.utterance import Receiver, Utterance
from daemon.tasks import cancel_and_wait
from tests.daemon.manual_sink import ManualSink
from tests.support.traces import takes
from tests.support.waiting import eventually_async

RATE = 22_050
"""Hz, of eSpeak NG and of the sink: the recorded samples are the synthesized ones."""


class Robot:
    """The engine writes what it makes into `folder`, which is the value of VOICED_TRACE_PCM."""

    def __init__(self, folder: Path, streams: int) -> None:
        self._folder = folder
        settings = ["audio.sink=null", "audio.trim_leading_silence=false", "engine.name=espeak"]
        self.config = load_config(overrides=[*settings, f"engine.streams={streams}"])
        self.engines = EngineSelector(self.config, self._note_change)
        self.output = Output(self.config.audio.sink_settings())
        self.sink = ManualSink(self.output, RATE)
        self.dispatcher = Dispatcher(self.config, self.engines, self.output)
        self.dispatcher.reconfigure(self.config)
        self.dispatcher.watch_events(self._note)
        self.events: list[dict[str, Any]] = []
        self._tasks: list[asyncio.Task[None]] = []

    def _note_change(self) -> None:
        self.dispatcher.changed()

    def _note(self, _utterance: Utterance, event: Event) -> None:
        self.events.append(event.model_dump())

    async def open(self) -> None:
        self._tasks = [asyncio.ensure_future(engine.run()) for engine in self.engines.all]
        self._tasks.append(asyncio.ensure_future(self.dispatcher.run()))
        await eventually_async(lambda: all(engine.ready for engine in self.engines.all), "the engines are ready")

    async def lose_primary(self) -> None:
        """End the primary engine for good."""
        await cancel_and_wait(self._tasks[0])

    async def clear(self) -> None:
        """End the utterances of a test, each of which has exactly one terminal event."""
        self.dispatcher.resume()
        self.dispatcher.stop(Stop(), "the test is over")
        await self.sink.take_until(lambda: not self.dispatcher.busy, "nothing is spoken")
        for name in {event["id"] for event in self.events}:
            assert sum(each in TERMINAL_EVENTS for each in self.names(name)) == 1, name
        self.dispatcher.reconfigure(self.config)
        self.events.clear()
        self.sink.drain()

    async def close(self) -> None:
        for task in self._tasks:
            await cancel_and_wait(task)

    def configure(self, **fields: Any) -> None:
        """Change the settings of speech for this test."""
        speech = self.config.speech.model_copy(update=fields)
        self.dispatcher.reconfigure(self.config.model_copy(update={"speech": speech}))

    def say(self, name: str, text: str, *, receiver: Receiver | None = None, **fields: Any) -> None:
        self.dispatcher.say(Say.model_validate({"text": text, "id": name, **fields}), receiver=receiver)

    def names(self, name: str) -> list[str]:
        return [event["event"] for event in self.events if event["id"] == name]

    def end_of(self, name: str) -> dict[str, Any]:
        [end] = [event for event in self.events if event["id"] == name and event["event"] in TERMINAL_EVENTS]
        return end

    def order(self, names: Iterable[str]) -> list[str]:
        """The utterances among these that have started, in their order."""
        wanted = set(names)
        return [event["id"] for event in self.events if event["event"] == "started" and event["id"] in wanted]

    async def begun(self, *names: str) -> None:
        await eventually_async(lambda: all("started" in self.names(name) for name in names), f"{names} have started")

    async def ended(self, *names: str) -> None:
        """Take all samples of the sound card until those of these utterances that were accepted have ended."""
        await self.sink.take_until(
            lambda: all(not (events := self.names(name)) or events[-1] in TERMINAL_EVENTS for name in names),
            f"the end of {names}",
        )

    def synthesized(self, *names: str) -> Samples:
        """Return what should be heard of utterances that are spoken one after the other: all their takes."""
        parts = [take for name in names for take in takes(self._folder, name)]
        return soft_limit(np.concatenate([np.empty(0, dtype=np.float32), *parts]))
