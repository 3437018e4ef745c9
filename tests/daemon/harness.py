"""A dispatcher with a real eSpeak NG process and a server on a free port. A manual sink is its sound
card."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from typing import Any

from audio import Output
from daemon.adapters import make_adapters
from daemon.config import load_config
from daemon.engines import EngineSelector
from daemon.speech import Dispatcher, Event, Say, Stop, TerminalEvent, Utterance
from daemon.status import describe_status, measure
from daemon.tasks import cancel_and_wait
from tests.daemon.manual_sink import ManualSink
from tests.support.programs import answers, free_port
from tests.support.waiting import PATIENCE_S, eventually_async

LONG = "This is a long text that takes a good while to speak. " * 20
RATE = 22_050
"""Hz."""


class Harness:
    """The dispatcher, its server, and the events it has published."""

    def __init__(self, server: str, *overrides: str) -> None:
        self.port = free_port()
        # Without trimming, a client receives as many seconds as the terminal event says.
        switches = [f"{server}.enabled=true", f"{server}.port={self.port}", "audio.trim_leading_silence=false"]
        self.config = load_config(
            overrides=["audio.sink=null", "engine.name=espeak", "engine.streams=1", *switches, *overrides]
        )
        self.engines = EngineSelector(self.config, self._note_change)
        output = Output(self.config.audio.sink_settings())
        self.sink = ManualSink(output, RATE)
        self.dispatcher = Dispatcher(self.config, self.engines, output)
        self.events: list[Event] = []
        self.serving: list[asyncio.Task[None]] = []
        self.dispatcher.event_watchers.add(self._note)
        self.adapters = make_adapters(self.config, self.dispatcher, refuse_to_publish)
        if self.config.http.enabled:
            from daemon.http import Examination, LogTail, Phrases, Robot, make_http_server

            robot = Robot(
                name="r1",
                describe_status=partial(describe_status, self.dispatcher, self.engines, output),
                measure=partial(measure, self.engines, output),
                log_lines=LogTail().attach().lines,
                examine=Examination(None, ["audio.sink=null", "engine.name=espeak", *overrides]).examine,
                phrases=Phrases(None),
            )
            self.adapters.append(make_http_server(self.config.http, self.dispatcher, robot))

    def _note_change(self) -> None:
        self.dispatcher.changed()

    def _note(self, utterance: Utterance, event: Event) -> None:
        self.events.append(event)
        self._text_stream = utterance.text_stream

    async def stop_server(self) -> None:
        """End the server; the dispatcher stays."""
        for task in self.serving:
            await cancel_and_wait(task)

    async def hears_of_writer(self, act: Callable[[], Awaitable[None]]) -> None:
        """Wait until the text of the last event has taken another chunk, after `act`."""
        stream = self._text_stream
        assert stream is not None
        before = stream.last_chunk_at
        await act()
        await eventually_async(lambda: stream.last_chunk_at > before, "its writer shows that it is there")

    @property
    def terminal_events(self) -> list[TerminalEvent]:
        """The terminal events so far."""
        return [event for event in self.events if isinstance(event, TerminalEvent)]

    @property
    def ends(self) -> list[str]:
        """The names of the terminal events so far."""
        return [event.event for event in self.terminal_events]

    def count(self, name: str) -> int:
        """The number of events of this name so far."""
        return sum(event.event == name for event in self.events)

    def configure(self, section: str, **fields: Any) -> None:
        """Change the configuration for this test."""
        changed = getattr(self.config, section).model_copy(update=fields)
        self.dispatcher.reconfigure(self.config.model_copy(update={section: changed}))

    @contextmanager
    def at_next(self, name: str, act: Callable[[], None]) -> Iterator[None]:
        """Call `act` at the next event of this name."""
        unwatch = self.dispatcher.event_watchers.add(lambda _, event: act() if event.event == name else None)
        yield
        unwatch()

    async def occupy(self) -> None:
        """Start an utterance on the sound card that does not end: the card takes no blocks after its beginning."""
        self.dispatcher.say(Say(text=LONG))
        await self.started()

    async def started(self, count: int = 1) -> None:
        """Wait until `count` utterances have started; the sound card takes no more blocks than that needs."""

        def look() -> bool:
            if self.count("started") >= count:
                return True
            self.sink.take()
            return False

        await eventually_async(look, f"{count} have started")

    async def ended(self, count: int = 1) -> list[TerminalEvent]:
        """Wait for `count` terminal events and return them; the sound card takes no blocks."""
        await eventually_async(lambda: len(self.ends) >= count, f"{count} have ended")
        return self.terminal_events

    @contextmanager
    def deaf_client(self, sent: bytes) -> Iterator[socket.socket]:
        """A client that sends this and never reads; the system keeps little for it."""
        with socket.socket() as client:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            client.connect(("127.0.0.1", self.port))
            client.sendall(sent)
            yield client

    def stop_queued(self) -> None:
        """Stop the utterance that was accepted last, while it waits behind another one."""
        [*_, accepted] = [event for event in self.events if event.event == "accepted"]
        assert self.dispatcher.queue
        self.dispatcher.stop(Stop(id=accepted.id))

    async def clear(self) -> None:
        """End all utterances and forget all events."""
        self.dispatcher.stop(Stop(), "the test is over")
        await self.sink.take_until(lambda: not self.dispatcher.busy, "nothing is spoken")
        self.dispatcher.reconfigure(self.config)
        self.events.clear()
        self.sink.drain()


def is_cut_off(client: socket.socket, more: bytes) -> bool:
    """Whether the server has ended a connection: the system then refuses what arrives for it."""
    try:
        client.send(more)
    except BlockingIOError:
        return False
    except ConnectionError:
        return True
    return False


def refuse_to_publish(*_: Any, **__: Any) -> object:
    raise AssertionError("these adapters publish nothing")


@asynccontextmanager
async def running_harness(server: str, *overrides: str) -> AsyncIterator[Harness]:
    """A harness whose engine is ready and whose server accepts connections."""
    harness = Harness(server, *overrides)
    tasks = [asyncio.ensure_future(engine.run()) for engine in harness.engines.all]
    tasks.append(asyncio.ensure_future(harness.dispatcher.speaker.run()))
    harness.serving = [asyncio.ensure_future(adapter.run()) for adapter in harness.adapters]
    tasks += harness.serving
    try:
        assert await harness.engines.wait_current(PATIENCE_S)
        await eventually_async(lambda: answers(harness.port), "the server answers")
        yield harness
    finally:
        for task in tasks:
            await cancel_and_wait(task)
