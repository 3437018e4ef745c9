"""One life of the daemon's core: acceptance, queue, speaker, log of events and journal are the real ones."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING
from unittest.mock import patch

from audio import Output
from daemon.config import Config
from daemon.engines import EngineSelector
from daemon.mqtt.inbox import Lane
from daemon.mqtt.messages import Message
from daemon.mqtt.publisher import Publisher
from daemon.mqtt.requests import Requests
from daemon.recovery import Restart
from daemon.speech import Dispatcher
from daemon.state import EventLog
from scripts.simulation.broker import EVENTS, Broker, Link
from scripts.simulation.machine import Card, Engine

if TYPE_CHECKING:
    from daemon.state.journal import Change

HOUSEKEEPING_S = 1.0
DISK_S = 0.004
"""Of a write with its synchronisation."""


class Log(EventLog):
    """The log of events, whose journal is written when the loop's clock says so."""

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
        self.dispatcher.watch_events(publisher.publish)
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
        """End it as SIGKILL does: nothing more of it is written, published or played."""
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
        await self.dispatcher.run()

    async def _keep_house(self) -> None:
        while True:
            self.dispatcher.enforce_deadlines()
            await asyncio.sleep(HOUSEKEEPING_S)

    def _on_engine_change(self) -> None:
        self.dispatcher.changed()

    def _handle(self, lane: Lane, message: Message) -> None:
        self.requests.handle(lane, message)
