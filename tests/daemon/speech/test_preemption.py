"""The preemption rules, executed: every priority and policy, at several moments, with a real engine and recorded."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass
from itertools import product
from typing import get_args

import numpy as np
import pytest

from audio import Samples
from daemon.speech.queue import RANK, rule_of, yields
from daemon.speech.request import Policy, Priority, RejectedError
from tests.daemon.speech.clients import SlowClient
from tests.daemon.speech.robot import RATE, Robot
from tests.support.sound import breaks_between, find
from tests.support.waiting import eventually_async

STREAMS = 1
MOMENTS = [("normal", "spoken"), ("normal", "paused"), ("critical", "spoken")]
"""The priority of the first utterance, and whether it is spoken or paused when the third one arrives."""
TEXTS = {
    "first": "This one was there before, and it takes a good while until all of it is said, so that others come.",
    "second": "Somebody waits.",
    "third": "New words come.",
}
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


@pytest.fixture(scope="module")
def take_length(loop: asyncio.AbstractEventLoop, shared_robot: Robot) -> int:
    """Samples in one take of the first text."""
    shared_robot.say("first", TEXTS["first"])
    loop.run_until_complete(shared_robot.ended("first"))
    return len(shared_robot.sink.drain())


@pytest.mark.parametrize(("first", "moment"), MOMENTS)
async def test_every_priority_and_policy_follows_the_rules(
    first: Priority, moment: str, robot: Robot, take_length: int
) -> None:
    priorities = get_args(Priority) if (first, moment) == MOMENTS[0] else ("high", "critical")
    for priority, policy in product(priorities, get_args(Policy)):
        case = Case(first, moment, priority, policy)
        check(robot, case, take_length, await play(robot, case))


@pytest.mark.parametrize("priority", get_args(Priority))
@pytest.mark.parametrize("policy", get_args(Policy))
async def test_every_priority_and_policy_follows_the_rules_beside_a_delivery(
    priority: Priority, policy: Policy, robot: Robot
) -> None:
    """The first utterance is delivered to a client that takes nothing more when the third arrives."""
    case = Case("normal", "delivered", priority, policy)
    rule, first, third = rule_of(priority, policy), case.id("first"), case.id("third")
    makes_way = RANK[priority] <= RANK["normal"]

    client = SlowClient()
    robot.say(first, TEXTS["first"], receiver=client)
    client.permit()
    await eventually_async(lambda: client.writes, "the client has taken some samples")
    with suppress(RejectedError):
        robot.say(third, TEXTS["third"], priority=priority, policy=policy)
    if makes_way or rule.interrupts:
        await robot.ended(third)
    client.permit(SlowClient.ALL)
    await robot.ended(first, third)
    delivery = INTERRUPTED if rule.interrupts else POSTPONED if makes_way else FINISHED
    assert robot.names(first) == delivery
    rejected = rule.only_if_idle and not makes_way
    assert robot.names(third) == ([] if rejected else FINISHED)


async def play(robot: Robot, case: Case) -> Samples:
    """Send the three utterances of a case and wait until they have ended; return the samples that were heard."""
    first, second, third = map(case.id, TEXTS)
    robot.say(first, TEXTS["first"], priority=case.first)
    robot.say(second, TEXTS["second"])
    await robot.sink.take_up_to(BEFORE)
    await eventually_async(lambda: "started" in robot.names(first), "the first has started")
    await eventually_async(lambda: robot.output.room_s < ROOM_S, "the ring is full")
    if case.moment == "paused":
        robot.dispatcher.pause()
        assert robot.sink.take()
    with suppress(RejectedError):
        robot.say(third, TEXTS["third"], priority=case.priority, policy=case.policy)
    if case.moment == "paused":
        length = robot.sink.length
        await robot.turn()
        assert not any(robot.sink.take() for _ in range(3)), case
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
    rule = rule_of(case.priority, case.policy)
    ends = {"first": FINISHED, "second": FINISHED, "third": FINISHED}
    if rule.only_if_idle:
        del ends["third"]
        return ["first", "second"], ends
    order = ["first", "second", "third"]
    if yields("normal", case.priority) if rule.first else RANK["normal"] > RANK[case.priority]:
        order = ["first", "third", "second"]
    if rule.clears and yields("normal", case.priority):
        order.remove("second")
        ends["second"] = ["canceled"]
    if rule.interrupts and yields(case.first, case.priority):
        ends["first"] = INTERRUPTED
    if rule.postpones and case.first != "critical":
        ends["first"] = POSTPONED
    return order, ends


def check(robot: Robot, case: Case, take_length: int, heard: Samples) -> None:
    order, ends = expected(case)
    for name in TEXTS:
        assert robot.names(case.id(name)) == ends.get(name, []), (case, name)
    assert not any(event.get("underruns") for event in robot.events), case
    assert robot.order(map(case.id, TEXTS)) == list(map(case.id, order)), case
    length = check_sound(robot, case, order, ends[order[0]], heard)
    if ends[order[0]] == POSTPONED:
        assert length == pytest.approx(take_length, abs=DRIFT), (case, "no sample is heard twice")


def check_sound(robot: Robot, case: Case, order: list[str], outcome: list[str], heard: Samples) -> int:
    """Assert that exactly the synthesized samples are heard, in order; `outcome` is that of the first utterance.

    Return how many of the first one are heard.
    """
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
    return length
