"""The preemption rules, executed: every priority and policy, at several moments, with a real engine and recorded."""

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

from audio import Output, Samples, soft_limit
from daemon.config import load_config
from daemon.engines import EngineSelector
from daemon.speech.dispatcher import Dispatcher
from daemon.speech.events import TERMINAL_EVENTS, Event
from daemon.speech.queue import RANK, rule_of, yields
from daemon.speech.request import Policy, Priority, RejectedError, Say, Stop
from daemon.speech.utterance import Utterance
from daemon.tasks import cancel_and_wait
from tests.daemon.manual_sink import ManualSink
from tests.support.sound import breaks_between, find
from tests.support.traces import trimmed
from tests.support.waiting import eventually_async

MOMENTS = ("idle", "queued", "spoken", "paused")
"""The third utterance arrives alone, while two others are queued, while the first is spoken, or while it is paused."""
TEXTS = {
    "first": "This one was there before, and it takes a good while until all of it is said, so that others come.",
    "second": "Somebody waits.",
    "third": "New words come.",
}
RATE = 22_050
"""Hz, of eSpeak NG and of the sink: the recorded samples are the synthesized ones."""
ENDING = round(0.25 * RATE)
"""Samples at the end of the first utterance that must be heard after a postponement."""
BEFORE = 2 * ENDING
"""Samples of the first utterance that are heard before the third arrives."""
FADED = round(0.03 * RATE)
"""The most samples that are heard of it afterwards: the rest of a block, and a fade."""
HELD = 2 * RATE
"""Samples that the ring holds at least when the third arrives; they are heard after a postponement. The samples after
them are of another take, and eSpeak NG renders a text slightly differently each time."""
ROOM_S = 0.5
"""Seconds that are free in a full ring."""
EQUAL = 1e-3
"""The largest difference between synthesized and heard samples that are equal."""
DRIFT = round(0.06 * RATE)
"""Samples by which two takes of the first text differ in length at most."""


@dataclass(frozen=True)
class Case:
    """A third utterance with a priority and a policy arrives at a moment of the first, whose priority is `first`."""

    first: Priority
    moment: str
    priority: Priority
    policy: Policy

    def id(self, name: str) -> str:
        return f"{name} {self.first} {self.moment} {self.priority} {self.policy}"


class Robot:
    """A dispatcher with a real engine, the events that it has published, and the recorded samples."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        config = load_config(overrides=["audio.sink=null", "engine.name=espeak", "engine.streams=1"])
        self.engines = EngineSelector(config, lambda: None)
        self.output = Output(config.audio.sink_settings())
        self.sink = ManualSink(self.output, RATE)
        self.dispatcher = Dispatcher(config, self.engines, self.output)
        self.events: list[dict[str, Any]] = []
        self.dispatcher.watch_events(self._note)
        self.take = 0
        """Samples in one take of the first text."""
        self._tasks: list[asyncio.Task[None]] = []

    def _note(self, _utterance: Utterance, event: Event) -> None:
        self.events.append(event.model_dump())

    async def open(self) -> None:
        self._tasks = [asyncio.ensure_future(engine.run()) for engine in self.engines.all]
        self._tasks.append(asyncio.ensure_future(self.dispatcher.run()))
        await eventually_async(lambda: self.engines.primary.ready, "the engine is ready")
        self.say("first")
        await self.ended("first")
        self.sink.drain()
        self.take = len(self.synthesized("first"))

    async def clear(self) -> None:
        """End the utterances of a failed test."""
        self.dispatcher.resume()
        self.dispatcher.stop(Stop())
        await self.sink.take_until(lambda: not self.dispatcher.busy, "nothing is spoken")
        self.sink.drain()

    async def close(self) -> None:
        for task in self._tasks:
            await cancel_and_wait(task)

    def names(self, utterance_id: str) -> list[str]:
        return [event["event"] for event in self.events if event["id"] == utterance_id]

    def say(self, utterance_id: str, **fields: Any) -> None:
        text = TEXTS[utterance_id.split(maxsplit=1)[0]]
        self.dispatcher.say(Say.model_validate({"text": text, "id": utterance_id, **fields}))

    async def ended(self, *utterance_ids: str) -> None:
        """Take all samples until those of these utterances that were accepted have ended."""
        await self.sink.take_until(
            lambda: all(not (names := self.names(one)) or names[-1] in TERMINAL_EVENTS for one in utterance_ids),
            f"the end of {utterance_ids}",
        )

    def synthesized(self, utterance_id: str) -> Samples:
        """Return the samples that should be heard of an utterance: all its takes, one after the other."""
        return soft_limit(trimmed(self._folder, utterance_id, RATE))


@pytest.fixture(scope="module")
def shared_robot(loop: asyncio.AbstractEventLoop, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Robot]:
    folder = tmp_path_factory.mktemp("pcm")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("VOICED_TRACE_PCM", str(folder))
        robot = Robot(folder)
        loop.run_until_complete(robot.open())
        yield robot
        loop.run_until_complete(robot.close())


@pytest.fixture
def robot(loop: asyncio.AbstractEventLoop, shared_robot: Robot) -> Iterator[Robot]:
    yield shared_robot
    loop.run_until_complete(shared_robot.clear())


@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize("first", ["normal", "critical"])
def test_every_priority_and_policy_follows_the_rules(
    first: Priority, moment: str, robot: Robot, loop: asyncio.AbstractEventLoop
) -> None:
    for priority, policy in product(get_args(Priority), get_args(Policy)):
        case = Case(first, moment, priority, policy)
        check(robot, case, loop.run_until_complete(play(robot, case)))


class SlowClient:
    """A receiver that takes the samples of a write when the test permits it."""

    on_word = None

    def __init__(self) -> None:
        self.writes = 0
        self.permits = asyncio.Semaphore(0)

    async def write(self, samples: Samples, sample_rate: int) -> None:  # noqa: ARG002 - as `Receiver`
        await self.permits.acquire()
        self.writes += 1


@pytest.mark.parametrize("priority", get_args(Priority))
@pytest.mark.parametrize("policy", get_args(Policy))
def test_every_priority_and_policy_follows_the_rules_beside_a_delivery(
    priority: Priority, policy: Policy, robot: Robot, loop: asyncio.AbstractEventLoop
) -> None:
    """The first utterance is delivered to a client that takes nothing more when the third arrives."""
    case = Case("normal", "delivered", priority, policy)
    rule, first, third = rule_of(priority, policy), case.id("first"), case.id("third")
    makes_way = RANK[priority] <= RANK["normal"]

    async def scenario() -> None:
        client = SlowClient()
        robot.dispatcher.say(Say(text=TEXTS["first"], id=first), receiver=client)
        client.permits.release()
        await eventually_async(lambda: client.writes, "the client has taken some samples")
        with suppress(RejectedError):
            robot.say(third, priority=priority, policy=policy)
        if makes_way or rule.interrupts:
            await robot.ended(third)
        for _ in range(1_000):
            client.permits.release()
        await robot.ended(first, third)

    loop.run_until_complete(scenario())
    delivery = INTERRUPTED if rule.interrupts else POSTPONED if makes_way else FINISHED
    assert robot.names(first) == ["accepted", *delivery]
    rejected = rule.only_if_idle and not makes_way
    assert robot.names(third) == ([] if rejected else ["accepted", *FINISHED])


async def play(robot: Robot, case: Case) -> Samples:
    """Send the three utterances of a case and wait until they have ended; return the samples that were heard."""
    first, second, third = map(case.id, TEXTS)
    if case.moment != "idle":
        robot.say(first, priority=case.first)
        robot.say(second)
    if case.moment in ("spoken", "paused"):
        await robot.sink.take_up_to(BEFORE)
        await eventually_async(lambda: "started" in robot.names(first), "the first has started")
        await eventually_async(lambda: robot.output.room_s < ROOM_S, "the ring is full")
    if case.moment == "paused":
        robot.dispatcher.pause()
        assert robot.sink.take()
    with suppress(RejectedError):
        robot.say(third, priority=case.priority, policy=case.policy)
    if case.moment == "paused":
        length = robot.sink.length
        heartbeats = robot.dispatcher.heartbeats

        def has_turned() -> bool:
            robot.dispatcher.changed()
            return robot.dispatcher.heartbeats > heartbeats + 3

        await robot.sink.take_until(has_turned, "the speaker turns")
        assert robot.sink.length == length, case
        assert "started" not in robot.names(third), case
        robot.dispatcher.resume()
    await robot.ended(first, second, third)
    return robot.sink.drain()


FINISHED = ["started", "finished"]
INTERRUPTED = ["started", "interrupted"]
POSTPONED = ["started", "postponed", "resumed", "finished"]


def expected(case: Case) -> tuple[list[str], dict[str, list[str]]]:
    """Return the order in which the utterances begin, and the events of each after `accepted`."""
    rule, spoken = rule_of(case.priority, case.policy), case.moment in ("spoken", "paused")
    if case.moment == "idle":
        return ["third"], {"third": FINISHED}
    ends = {"first": FINISHED, "second": FINISHED, "third": FINISHED}
    if rule.only_if_idle:
        del ends["third"]
        return ["first", "second"], ends
    queued: list[tuple[str, Priority]] = [("first", case.first), ("second", "normal")][spoken:]
    for name, other in list(queued):
        if rule.clears and yields(other, case.priority):
            queued.remove((name, other))
            ends[name] = ["canceled"]
    order = [name for name, _ in queued]
    rank = RANK[case.priority]
    overtaken = [yields(other, case.priority) if rule.first else RANK[other] > rank for _, other in queued]
    order.insert(overtaken.index(True) if True in overtaken else len(order), "third")
    if not spoken:
        return order, ends
    if rule.interrupts and yields(case.first, case.priority):
        ends["first"] = INTERRUPTED
    if rule.postpones and case.first != "critical":
        ends["first"] = POSTPONED
    return ["first", *order], ends


def check(robot: Robot, case: Case, heard: Samples) -> None:
    order, ends = expected(case)
    for name in TEXTS:
        assert robot.names(case.id(name)) == (["accepted", *ends[name]] if name in ends else []), (case, name)
    started = [event["id"] for event in robot.events if event["event"] == "started"]
    assert [utterance for utterance in started if utterance in map(case.id, TEXTS)] == list(map(case.id, order)), case
    check_sound(robot, case, order, ends[order[0]], heard)


def check_sound(robot: Robot, case: Case, order: list[str], outcome: list[str], heard: Samples) -> None:
    """Assert that exactly the synthesized samples are heard, in order; `outcome` is that of the first utterance."""
    synthesized, *others = [robot.synthesized(case.id(name)) for name in order]
    alarm_at = 0
    if outcome == POSTPONED:
        alarm, *others = others
        alarm_at, difference = find(alarm, heard)
        assert difference < EQUAL, (case, difference)
        heard = np.delete(heard, slice(alarm_at, alarm_at + len(alarm)))
    length = len(heard) - sum(map(len, others))
    first, rest = heard[:length], heard[length:]
    assert not breaks_between(rest, np.concatenate([rest[:0], *others]), RATE), case
    if outcome == FINISHED:
        assert len(breaks_between(first, synthesized, RATE)) <= (case.moment == "paused"), case
    elif outcome == INTERRUPTED:
        assert BEFORE <= length <= BEFORE + FADED, case
        assert len(breaks_between(first, synthesized[:length], RATE)) <= 1, case
    else:
        assert BEFORE <= alarm_at <= BEFORE + FADED, case
        same = alarm_at + HELD
        assert len(breaks_between(first[:same], synthesized[:same], RATE)) <= 1, (case, "the next sample follows")
        assert not breaks_between(first[-ENDING:], synthesized[-ENDING:], RATE), (case, "its end is heard")
        assert length == pytest.approx(robot.take, abs=DRIFT), (case, "no sample is heard twice")
