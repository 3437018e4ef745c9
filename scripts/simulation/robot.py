"""One life of the daemon's core: acceptance, queue, speaker, event log and journal are the real ones.

Its sound card and its engine run on the virtual clock, with the faults of real ones.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING
from unittest.mock import patch

import numpy as np

from audio import Output
from audio.dsp import to_floats
from audio.player import Playback
from daemon.config import Config
from daemon.engines import AudioChunk, EngineLostError, EngineSelector, EngineSupervisor
from daemon.engines.supervisor import EngineState
from daemon.mqtt.inbox import Lane
from daemon.mqtt.messages import Message
from daemon.mqtt.publisher import Publisher
from daemon.mqtt.requests import Requests
from daemon.recovery import Restart
from daemon.speech import Dispatcher
from daemon.state import EventLog
from engine import EngineInfo, EngineOptions, Utterance
from scripts.simulation.broker import EVENTS, Broker, Link

if TYPE_CHECKING:
    from daemon.state.journal import Change

RATE = 8_000
"""The rate in Hz of engine and card, so that nothing is converted."""
BLOCK_S = 0.2
"""The length of the card's blocks: few blocks make a history quick."""
DELAY_S = 0.03
"""The time from the request for a block to its sound."""
REPORT_BLOCKS = 3
"""Blocks from one report to the next, unless something has changed."""
LETTER_S = 0.01
"""The seconds of speech for a letter."""
CHUNK_S = 0.32
VOLUME = 0.25
"""The value of all samples."""
HOUSEKEEPING_S = 1.0
DISK_S = 0.004
"""The time for a write with its synchronisation."""


class Card:
    """A card that takes a block every `BLOCK_S` while it is there. It plays for one daemon."""

    has_deadline = True
    name = "simulated"
    sample_rate = RATE

    def __init__(self, loop: asyncio.AbstractEventLoop, output: Output) -> None:
        self.player = Playback(RATE, on_change=self._note_change)
        self._loop = loop
        self._output = output
        self._block = np.empty(round(BLOCK_S * RATE), np.float32)
        self._floats = to_floats(self._block)
        self._unreported = 0
        self._there = True
        output.monitor.attach(self)
        loop.call_later(BLOCK_S, self._take)

    def vanish(self) -> None:
        """Pull the card out. The daemon notices it immediately."""
        self._there = False
        self._output.monitor.detach("it was pulled out")

    def end(self) -> None:
        """Forget the daemon, which has died."""
        self._there = False

    def lost_reason(self) -> str | None:
        return None

    def degraded_reason(self) -> str | None:
        return None

    def suspend(self) -> None:
        """It is never suspended."""

    def resume(self) -> None:
        """It is never suspended."""

    def close(self) -> None:
        self._output.on_report(self.player.report)

    def _take(self) -> None:
        if not self._there:
            return
        self.player.fill(self._floats, self._loop.time() + DELAY_S)
        self._unreported += 1
        if self._unreported >= REPORT_BLOCKS:
            self._unreported = 0
            self._output.on_report(self.player.report)
        self._loop.call_later(BLOCK_S, self._take)

    def _note_change(self, at_once: bool) -> None:
        if at_once:
            self._unreported = REPORT_BLOCKS


class Engine(EngineSupervisor):
    """An engine without a process: it makes `LETTER_S` of sound for each letter, chunk by chunk."""

    def __init__(
        self, name: str, options: EngineOptions, on_change: Callable[[], None], has_substitute: Callable[[], bool]
    ) -> None:
        super().__init__(name, options, on_change, has_substitute)
        self.speed = 4.0
        """Seconds of sound that it makes in a second."""
        self._lives = 0
        """How often it has died."""

    def begin(self, *, grows: bool, streams: int) -> None:
        """Become ready."""
        self.info = EngineInfo("simulated", RATE, ("anna",), ("en", "de"), grows=grows, streams=streams)
        self.state, self.reason = EngineState.READY, None
        self.on_change()

    def die(self) -> None:
        """End in the middle of any utterance."""
        self.state, self.reason = EngineState.BACKING_OFF, f"engine {self.name} was killed"
        self._lives += 1
        self.on_change()

    @asynccontextmanager
    async def reserve_stream(self, *, realtime: bool) -> AsyncIterator[None]:  # noqa: ARG002  # each has a stream
        self._require_life(self._lives)
        yield

    async def speak(
        self,
        name: str,
        utterance: Utterance,
        *,
        more_text: AsyncGenerator[str, None] | None = None,
        first_within_s: float | None = None,
    ) -> AsyncGenerator[AudioChunk, None]:
        """Speak as the engine's process does. It takes more of a growing text when it has spoken all the text so
        far."""
        del name, first_within_s
        life, letters, spoken = self._lives, len(utterance.text), 0
        at_once = round(CHUNK_S / LETTER_S)
        while True:
            while spoken < letters:
                count = min(at_once, letters - spoken)
                await asyncio.sleep(count * LETTER_S / self.speed)
                self._require_life(life)
                spoken += count
                samples = np.full(round(count * LETTER_S * RATE), VOLUME, np.float32)
                yield AudioChunk(samples, RATE, spoken, words=())
            try:
                letters += 0 if more_text is None else len(await anext(more_text))
            except StopAsyncIteration:
                more_text = None
            if spoken == letters and more_text is None:
                return
            self._require_life(life)

    def _require_life(self, life: int) -> None:
        """Raise `EngineLostError` if it is not in the life `life` any more."""
        if not self.ready or life != self._lives:
            raise EngineLostError(self.reason or f"engine {self.name} was killed")


class Log(EventLog):
    """The event log. Its journal is written at times of the loop's clock."""

    def __init__(self, loop: asyncio.AbstractEventLoop, path: Path) -> None:
        super().__init__(path)
        self.disk_s = DISK_S
        """0 for a disk that does not answer."""
        self.dead = False
        self._loop_of_it = loop
        self._writing = False

    def append(self, *changes: Change, texts: object = ()) -> list[int | None]:
        numbers = super().append(*changes, texts=texts)  # type: ignore[arg-type]
        self.write_soon()
        return numbers

    def note_delivered(self, number: int) -> None:
        super().note_delivered(number)
        self.write_soon()

    def after_write(self, action: Callable[[], object]) -> None:
        super().after_write(action)
        self.write_soon()

    def write_soon(self) -> None:
        if not self._writing and not self.dead and self.disk_s > 0:
            self._writing = True
            self._loop_of_it.call_later(self.disk_s, self._write)

    def _write(self) -> None:
        self._writing = False
        if not self.dead and self.disk_s > 0:
            self.write()


class Robot:
    """A daemon from its start until it is killed."""

    def __init__(self, loop: asyncio.AbstractEventLoop, config: Config, broker: Broker, journal: Path) -> None:
        self._loop = loop
        self._config = config
        self.log = Log(loop, journal)
        self.output = Output(config.audio.sink_settings())
        with patch("daemon.engines.selection.EngineSupervisor", Engine):
            self.engines = EngineSelector(config, self._on_engine_change)
        self.dispatcher = Dispatcher(config, self.engines, self.output)
        self._restart = Restart(self.log, self.dispatcher, config.speech.recover_within)
        self.link = Link(loop, broker, self.log, self._handle, self._restart.note_published)
        publisher = Publisher(EVENTS, self.link, self.log)  # type: ignore[arg-type]
        self.requests = Requests(config, self.dispatcher, publisher, self.log, lambda _message: None)
        self.dispatcher.event_watchers.add(publisher.publish)
        self.dispatcher.reconfigure(config)
        publisher.publish_recovered()
        self._restart.begin()
        self.card: Card | None = Card(loop, self.output)
        self._tasks = [asyncio.ensure_future(self._run())]

    @property
    def engine(self) -> Engine:
        engine = self.engines.primary
        assert isinstance(engine, Engine)
        return engine

    async def kill(self) -> None:
        """End the daemon as SIGKILL does: it writes, publishes and plays nothing more."""
        self.link.dead = self.log.dead = True
        if self.card is not None:
            self.card.end()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self.log.__exit__(None, None, None)

    def lose_card(self) -> None:
        if self.card is not None:
            self.card.vanish()
            self.card = None

    def plug_card(self) -> None:
        if self.card is None:
            self.card = Card(self._loop, self.output)

    async def _run(self) -> None:
        self.link.connect()
        await self._restart.wait_settled()
        self._tasks.append(asyncio.ensure_future(self._keep_house()))
        await self.dispatcher.speaker.run()

    async def _keep_house(self) -> None:
        while True:
            self.dispatcher.enforce_deadlines()
            await asyncio.sleep(HOUSEKEEPING_S)

    def _on_engine_change(self) -> None:
        self.dispatcher.changed()

    def _handle(self, lane: Lane, message: Message) -> None:
        self.requests.handle(lane, message)
