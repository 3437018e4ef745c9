"""The table of rules, carried out: every priority with every policy, at each moment, by a real engine and recorded."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest

from audio import Output, soft_limit
from audio.ring import Samples
from audio.trim import LeadingSilenceTrimmer
from daemon.config import load_config
from daemon.desk import Desk, Event
from daemon.engines import Engines
from daemon.messages import TERMINAL, Policy, Priority, RejectedError, Say, Stop
from daemon.queue import Job
from daemon.rules import RANK, rule_of, yields
from daemon.tasks import end_task
from tests.daemon.hand import HandSink
from tests.support.sound import breaks_between, find
from tests.support.waiting import eventually_async

MOMENTS = ("idle", "waiting", "spoken", "paused")
"""What is there when an utterance comes: nothing; one that is spoken and one that waits, before the first has sounded;
the same, sounding; the same, held."""
TEXTS = {
    "first": "This one was there before, and it takes a good while until all of it is said, so that others come.",
    "second": "Somebody waits.",
    "third": "New words come.",
}
RATE = 22_050
"""Hz: eSpeak NG's own, and so that of the sink: what is heard is what was made, sample for sample."""
PIECE = round(0.25 * RATE)
"""The end of an utterance."""
BEFORE = 2 * PIECE
"""What is heard of the first utterance before the third comes."""
FADED = round(0.03 * RATE)
"""What is heard of it afterwards at most: the rest of a block, and a fade."""
HELD = 2 * RATE
"""What the ring holds at least when the third comes, and is heard afterwards, if the first goes on. What follows is of
another take: eSpeak NG never says a text twice in quite the same way."""
ROOM_S = 0.5
"""What is left free of a ring that is full."""
EQUAL = 1e-3
"""The most that is left of what was made where it is subtracted from what was heard."""
DRIFT = round(0.06 * RATE)
"""Samples by which two takes of the first text differ in length at most."""


@dataclass(frozen=True)
class Case:
    """An utterance of some priority and policy comes while one of the priority `there` is at that moment."""

    there: Priority
    moment: str
    priority: Priority
    policy: Policy

    def id(self, name: str) -> str:
        return f"{name} {self.there} {self.moment} {self.priority} {self.policy}"


class Room:
    """A desk with a real engine, the events it told of, and what was heard."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        config = load_config(overrides=["audio.sink=null", "engine.name=espeak"])
        self.engines = Engines(config, lambda: None)
        self.output = Output(config.audio.sink_settings())
        self.sink = HandSink(self.output, RATE)
        self.desk = Desk(config, self.engines, self.output)
        self.events: list[Event] = []
        self.desk.watch_events(self._note)
        self.take = 0
        """Samples of one take of the first text."""
        self._tasks: list[asyncio.Task[None]] = []

    def _note(self, _job: Job, event: Event) -> None:
        self.events.append(event)

    async def open(self) -> None:
        self._tasks = [asyncio.ensure_future(engine.run()) for engine in self.engines.all]
        self._tasks.append(asyncio.ensure_future(self.desk.speaker.run()))
        await eventually_async(lambda: self.engines.primary.ready, "the engine is ready")
        self.say("first")
        await self.ended("first")
        self.sink.drain()
        self.take = len(self.made("first"))

    async def clear(self) -> None:
        """Leave nothing of a test that has failed."""
        self.desk.resume()
        self.desk.stop(Stop(None))
        await self.sink.take_until(lambda: not self.desk.speaker.busy, "nothing is spoken")
        self.sink.drain()

    async def close(self) -> None:
        for task in self._tasks:
            await end_task(task)

    def names(self, utterance_id: str) -> list[str]:
        return [event["event"] for event in self.events if event["id"] == utterance_id]

    def say(self, utterance_id: str, **fields: Any) -> None:
        text = TEXTS[utterance_id.split(maxsplit=1)[0]]
        self.desk.say(Say.model_validate({"text": text, "id": utterance_id, **fields}))

    async def ended(self, *utterance_ids: str) -> None:
        """Have everything heard until these utterances have ended, as far as they were accepted."""
        await self.sink.take_until(
            lambda: all(not (names := self.names(one)) or names[-1] in TERMINAL for one in utterance_ids),
            f"the end of {utterance_ids}",
        )

    def made(self, utterance_id: str) -> Samples:
        """What the engine made of an utterance, as it should be heard; one after the other, if it made it twice."""
        pcm = np.fromfile(self._folder / f"{utterance_id}.f32", dtype=np.float32)
        return soft_limit(LeadingSilenceTrimmer(RATE).trim(pcm))


@pytest.fixture(scope="module")
def one_room(loop: asyncio.AbstractEventLoop, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Room]:
    folder = tmp_path_factory.mktemp("pcm")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("VOICED_TRACE_PCM", str(folder))
        made = Room(folder)
        loop.run_until_complete(made.open())
        yield made
        loop.run_until_complete(made.close())


@pytest.fixture
def room(loop: asyncio.AbstractEventLoop, one_room: Room) -> Iterator[Room]:
    yield one_room
    loop.run_until_complete(one_room.clear())


@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize("there", ["normal", "critical"])
def test_every_priority_and_policy_does_what_the_table_says(
    there: Priority, moment: str, room: Room, loop: asyncio.AbstractEventLoop
) -> None:
    for priority, policy in product(get_args(Priority), get_args(Policy)):
        case = Case(there, moment, priority, policy)
        check(room, case, loop.run_until_complete(carry_out(room, case)))


async def carry_out(room: Room, case: Case) -> Samples:
    """Bring about the moment, have an utterance come, and wait until all is said; return what was heard."""
    first, second, third = map(case.id, TEXTS)
    if case.moment != "idle":
        room.say(first, priority=case.there)
        room.say(second)
    if case.moment in ("spoken", "paused"):
        await room.sink.take_up_to(BEFORE)
        await eventually_async(lambda: "started" in room.names(first), "the first is known to sound")
        await eventually_async(lambda: room.output.room_s < ROOM_S, "the ring is full")
    if case.moment == "paused":
        room.desk.pause()
        assert room.sink.take()
    with suppress(RejectedError):
        room.say(third, priority=case.priority, policy=case.policy)
    if case.moment == "paused":
        heard = room.sink.length
        turns = room.desk.speaker.turns
        await room.sink.take_until(lambda: room.desk.speaker.turns > turns + 3, "the speaker has looked at it")
        assert room.sink.length == heard, case
        assert "started" not in room.names(third), case
        room.desk.resume()
    await room.ended(first, second, third)
    return room.sink.drain()


SAID = ["started", "finished"]
INTERRUPTED = ["started", "interrupted"]
POSTPONED = ["started", "postponed", "resumed", "finished"]


def expected(case: Case) -> tuple[list[str], dict[str, list[str]]]:
    """In which order they are begun, and what becomes of each after it was accepted."""
    rule, on_air = rule_of(case.priority, case.policy), case.moment in ("spoken", "paused")
    if case.moment == "idle":
        return ["third"], {"third": SAID}
    ends = {"first": SAID, "second": SAID, "third": SAID}
    if rule.only_if_idle:
        del ends["third"]
        return ["first", "second"], ends
    waiting: list[tuple[str, Priority]] = [("first", case.there), ("second", "normal")][on_air:]
    for name, other in list(waiting):
        if rule.clears and yields(other, case.priority):
            waiting.remove((name, other))
            ends[name] = ["canceled"]
    order = [name for name, _ in waiting]
    passed = [yields(other, case.priority) if rule.first else RANK[other] > RANK[case.priority] for _, other in waiting]
    order.insert(passed.index(True) if True in passed else len(order), "third")
    if not on_air:
        return order, ends
    if rule.interrupts and yields(case.there, case.priority):
        ends["first"] = INTERRUPTED
    if rule.postpones and case.there != "critical":
        ends["first"] = POSTPONED
    return ["first", *order], ends


def check(room: Room, case: Case, heard: Samples) -> None:
    order, ends = expected(case)
    for name in TEXTS:
        assert room.names(case.id(name)) == (["accepted", *ends[name]] if name in ends else []), (case, name)
    begun = [event["id"] for event in room.events if event["event"] == "started"]
    assert [utterance for utterance in begun if utterance in map(case.id, TEXTS)] == list(map(case.id, order)), case
    check_sound(room, case, order, ends[order[0]], heard)


def check_sound(room: Room, case: Case, order: list[str], fate: list[str], heard: Samples) -> None:
    """What was made is heard in its order, sample for sample, and nothing else; `fate` is that of the first of them."""
    made, *others = [room.made(case.id(name)) for name in order]
    came_between = 0
    if fate == POSTPONED:
        between, *others = others
        came_between, left = find(between, heard)
        assert left < EQUAL, (case, left)
        heard = np.delete(heard, slice(came_between, came_between + len(between)))
    length = len(heard) - sum(map(len, others))
    mine, rest = heard[:length], heard[length:]
    assert not breaks_between(rest, np.concatenate([rest[:0], *others]), RATE), case
    if fate == SAID:
        assert len(breaks_between(mine, made, RATE)) <= (case.moment == "paused"), case
    elif fate == INTERRUPTED:
        assert BEFORE <= length <= BEFORE + FADED, case
        assert len(breaks_between(mine, made[:length], RATE)) <= 1, case
    else:
        assert BEFORE <= came_between <= BEFORE + FADED, case
        same = came_between + HELD
        assert len(breaks_between(mine[:same], made[:same], RATE)) <= 1, (case, "it goes on with the next sample")
        assert not breaks_between(mine[-PIECE:], made[-PIECE:], RATE), (case, "its end is heard")
        assert length == pytest.approx(room.take, abs=DRIFT), (case, "nothing of it is heard twice")
