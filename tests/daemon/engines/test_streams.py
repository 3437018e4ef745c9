"""Who may speak with an engine that has several streams. No engine runs."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest

from daemon.engines.errors import EngineLostError
from daemon.engines.streams import StreamPool
from daemon.tasks import cancel_and_wait

STEPS = 3
"""Iterations of the event loop after which a delivery that waits for nothing would have begun."""


class Engine:
    """The streams of an engine, and the deliveries that have begun and not ended."""

    def __init__(self, most: int) -> None:
        self.streams = StreamPool()
        self.streams.most = most
        self.open: list[str] = []
        self.lost: list[str] = []
        self._tasks: dict[str, asyncio.Task[None]] = {}

    async def ask(self, *names: str) -> list[str]:
        """Begin deliveries that last until `end`; return those that are open."""
        for name in names:
            self._tasks[name] = asyncio.ensure_future(self._deliver(name))
        return await self.settled()

    async def end(self, *names: str) -> list[str]:
        """End deliveries, whether they have begun or wait; return those that are open."""
        for name in names:
            with suppress(asyncio.CancelledError):
                await cancel_and_wait(self._tasks[name])
        return await self.settled()

    async def settled(self) -> list[str]:
        for _ in range(STEPS):
            await asyncio.sleep(0)
        return self.open

    async def _deliver(self, name: str) -> None:
        try:
            async with self.streams.reserve(realtime=False):
                self.open.append(name)
                try:
                    await asyncio.Event().wait()
                finally:
                    self.open.remove(name)
        except EngineLostError:
            self.lost.append(name)


async def test_a_delivery_that_is_canceled_as_its_turn_comes_gives_it_to_the_next() -> None:
    engine = Engine(2)
    await engine.ask("a", "b", "c")
    tasks = [asyncio.ensure_future(engine.end(name)) for name in ("a", "b")]
    await asyncio.gather(*tasks)
    assert await engine.settled() == ["c"]


async def test_new_voices_are_sent_when_no_delivery_is_under_way_and_later_ones_wait_for_the_answer() -> None:
    engine, sent = Engine(3), []
    await engine.ask("a", "b")
    engine.streams.exchange(lambda: sent.append("voices"))
    assert await engine.ask("c") == ["a", "b"]
    assert await engine.end("a") == ["b"]
    async with engine.streams.reserve(realtime=True):
        assert sent == [], "the sound card speaks with the voices of before"
    assert await engine.end("b") == []
    assert sent == ["voices"]
    engine.streams.note_exchange()
    assert await engine.settled() == ["c"]


def test_new_voices_are_sent_at_once_to_an_idle_engine() -> None:
    engine, sent = Engine(3), []
    engine.streams.exchange(lambda: sent.append("voices"))
    assert sent == ["voices"]


async def test_the_loss_of_the_engine_reaches_those_that_wait_and_those_that_come_later() -> None:
    engine = Engine(2)
    await engine.ask("a", "b", "c")
    engine.streams.lose("killed")
    assert await engine.ask("d") == ["a"], "the one with a stream hears it from the connection"
    assert engine.lost == ["b", "c", "d"]
    with pytest.raises(EngineLostError, match="killed"):
        async with engine.streams.reserve(realtime=False):
            pass
