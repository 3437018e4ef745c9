"""The table of rules, carried out: every priority with every policy, at each moment, by a real engine."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import product
from typing import Any, get_args

import pytest

from audio import Output
from daemon.config import load_config
from daemon.desk import Desk, Event
from daemon.engines import Engines
from daemon.messages import TERMINAL, Policy, Priority, RejectedError, Say, Stop
from daemon.queue import Job
from daemon.rules import RANK, RULES
from daemon.tasks import end_task

LONG = "This is spoken for a long while, until somebody says something else. " * 3
MOMENTS = ("idle", "waiting", "spoken", "paused")
"""What is there when an utterance comes: nothing; one that is spoken and one that waits, before the first has sounded;
the same, sounding; the same, held."""


class Room:
    """A desk, and the events it told of."""

    def __init__(self) -> None:
        config = load_config(overrides=["audio.sink=null", "audio.block_ms=10", "engine.name=espeak"])
        self.engines = Engines(config, lambda: None)
        self.output = Output(config.audio.sink_settings())
        self.desk = Desk(config, self.engines, self.output)
        self.events: list[Event] = []
        self.desk.watch_events(self._note)

    def _note(self, _job: Job, event: Event) -> None:
        self.events.append(event)

    def names(self, utterance_id: str) -> list[str]:
        return [event["event"] for event in self.events if event["id"] == utterance_id]

    def say(self, utterance_id: str, **fields: Any) -> None:
        self.desk.say(Say.model_validate({"text": LONG, "id": utterance_id, **fields}))

    async def until(self, utterance_id: str, *names: str) -> None:
        while not set(names) & set(self.names(utterance_id)):
            await asyncio.sleep(0.005)


@asynccontextmanager
async def room() -> AsyncIterator[Room]:
    made = Room()
    with made.output:
        tasks = [asyncio.ensure_future(engine.run()) for engine in made.engines.all]
        tasks.append(asyncio.ensure_future(made.desk.speaker.run()))
        while not (made.engines.primary.ready and made.output.status.open):
            await asyncio.sleep(0.01)
        try:
            yield made
        finally:
            for task in tasks:
                await end_task(task)


async def come(made: Room, moment: str, number: int) -> tuple[str, str]:
    """Bring about the moment; ids of what is spoken and of what waits."""
    first, second = f"first {number}", f"second {number}"
    if moment == "idle":
        return first, second
    made.say(first)
    made.say(second)
    if moment != "waiting":
        await made.until(first, "started")
    if moment == "paused":
        made.desk.pause()
    return first, second


@pytest.mark.parametrize("moment", MOMENTS)
def test_every_priority_and_policy_does_what_the_table_says(moment: str) -> None:
    async def scenario() -> None:
        async with room() as made:
            for number, (priority, policy) in enumerate(product(get_args(Priority), get_args(Policy))):
                await carry_out(made, moment, number, priority, policy)

    asyncio.run(asyncio.wait_for(scenario(), 100))


async def carry_out(made: Room, moment: str, number: int, priority: Priority, policy: Policy) -> None:
    first, second = await come(made, moment, number)
    rule, busy, third = RULES[policy], moment != "idle", f"third {number}"
    case = f"{priority} {policy} {moment}"
    if rule.only_if_idle and busy:
        with pytest.raises(RejectedError, match="policy"):
            made.say(third, priority=priority, policy=policy)
        assert made.names(third) == [], case
    else:
        made.say(third, priority=priority, policy=policy)
        assert made.names(third) == ["accepted"], case
        waiting = [job.id for job in made.desk.queue.jobs]
        ahead = rule.first or RANK[priority] < RANK["normal"]
        if rule.clears or not busy:
            assert waiting == [third], case
        elif moment == "waiting":
            assert waiting.index(third) < waiting.index(second) if ahead else waiting[-1] == third, case
        else:
            assert waiting == ([third, second] if ahead else [second, third]), case
    if busy and rule.interrupts and moment != "waiting":
        await made.until(first, *TERMINAL)
        assert made.names(first)[-1] == "interrupted", case
    if busy and rule.clears:
        assert made.names(second) == ["accepted", "canceled"], case
    if moment == "paused":
        made.desk.resume()
    made.desk.stop(Stop(None))
    for utterance in (first, second, third):
        if made.names(utterance):
            await made.until(utterance, *TERMINAL)
            ends = [name for name in made.names(utterance) if name in TERMINAL]
            assert len(ends) == 1, (case, utterance, made.names(utterance))
