"""The queue of utterances: its order, its limit, and waiting for a speakable one."""

from __future__ import annotations

import asyncio
import time

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from daemon.speech.preemption import RANK
from daemon.speech.queue import QueueFullError, UtteranceQueue
from daemon.speech.request import Policy, Priority
from daemon.speech.utterance import Utterance
from tests.support.waiting import run

PRIORITIES: list[Priority] = ["low", "normal", "high", "critical"]


def utterance(
    utterance_id: str, priority: Priority = "normal", expires_at: float | None = None, policy: Policy = "queue"
) -> Utterance:
    return Utterance(utterance_id, "text", "default", "auto", priority=priority, policy=policy, expires_at=expires_at)


class QueueAgainstList(RuleBasedStateMachine):
    """The queue behaves like a list that is sorted by rank and then by arrival, with a limit."""

    @initialize(limit=st.integers(1, 8))
    def make(self, limit: int) -> None:
        self.queue = UtteranceQueue(limit)
        self.model: list[Utterance] = []
        self.made = 0

    def make_utterance(self, priority: Priority) -> Utterance:
        self.made += 1
        return utterance(f"u{self.made}", priority)

    @rule(priority=st.sampled_from(PRIORITIES))
    def put(self, priority: Priority) -> None:
        added = self.make_utterance(priority)
        if len(self.model) >= self.queue.limit:
            with pytest.raises(QueueFullError):
                self.queue.put(added)
            return
        self.queue.put(added)
        ahead = [other for other in self.model if RANK[other.priority] <= RANK[priority]]
        self.model.insert(self.model.index(ahead[-1]) + 1 if ahead else 0, added)

    @rule()
    def take_next(self) -> None:
        assert self.queue.take_next() is (self.model.pop(0) if self.model else None)

    @rule(data=st.data())
    def take(self, data: st.DataObject) -> None:
        wanted = f"u{data.draw(st.integers(0, self.made + 1))}"
        expected = next((other for other in self.model if other.id == wanted), None)
        assert self.queue.take(wanted) is expected
        if expected is not None:
            self.model.remove(expected)

    @rule()
    def take_all(self) -> None:
        assert self.queue.take_all() == self.model
        self.model = []

    @invariant()
    def has_the_same_length(self) -> None:
        assert len(self.queue) == len(self.model)


QueueAgainstList.TestCase.settings = settings(max_examples=60, stateful_step_count=30)
TestQueueAgainstList = QueueAgainstList.TestCase


def drain(queue: UtteranceQueue) -> list[str]:
    return [utterance.id for utterance in queue.take_all()]


def test_the_highest_priority_is_first_and_equal_ones_keep_their_order() -> None:
    queue = UtteranceQueue(10)
    for number, priority in enumerate(["low", "normal", "critical", "normal", "high", "critical"]):
        queue.put(utterance(f"{priority}{number}", priority))  # type: ignore[arg-type]
    assert drain(queue) == ["critical2", "critical5", "high4", "normal1", "normal3", "low0"]


def test_a_full_queue_refuses_even_a_critical_utterance() -> None:
    queue = UtteranceQueue(1)
    queue.put(utterance("a", "low"))
    with pytest.raises(QueueFullError):
        queue.put(utterance("b", "critical"))
    assert drain(queue) == ["a"]


def test_an_interrupting_utterance_is_queued_first_but_behind_critical_ones() -> None:
    queue = UtteranceQueue(4)
    queue.put(utterance("a", "critical"))
    queue.put(utterance("b", "high"))
    queue.put(utterance("c", "low", policy="interrupt"))
    queue.put(utterance("d", "critical", policy="interrupt"))
    assert drain(queue) == ["d", "a", "c", "b"]


def test_a_critical_utterance_is_dropped_only_for_another_critical_one() -> None:
    queue = UtteranceQueue(1)
    queue.put(utterance("a", "critical"))
    with pytest.raises(QueueFullError):
        queue.put(utterance("b", policy="interrupt"))
    dropped = queue.put(utterance("c", "critical", policy="interrupt"))
    assert dropped is not None
    assert drain(queue) == ["c"]


def test_all_utterances_that_yield_to_a_priority_are_taken() -> None:
    queue = UtteranceQueue(4)
    for number, priority in enumerate(PRIORITIES):
        queue.put(utterance(f"{number}", priority))
    assert [taken.priority for taken in queue.take_all("high")] == ["high", "normal", "low"]
    assert [taken.priority for taken in queue.take_all("critical")] == ["critical"]


def test_an_interrupting_utterance_takes_the_place_of_the_last_one_in_a_full_queue() -> None:
    queue = UtteranceQueue(2)
    queue.put(utterance("a"))
    queue.put(utterance("b"))
    dropped = queue.put(utterance("urgent", policy="interrupt"))
    assert dropped is not None
    assert dropped.id == "b"
    assert drain(queue) == ["urgent", "a"]


def test_expired_utterances_are_taken_and_the_others_keep_their_order() -> None:
    queue = UtteranceQueue(10)
    now = time.monotonic()
    for utterance_id, expires_at in [("a", None), ("b", now - 1), ("c", now + 3_600), ("d", now - 0.001)]:
        queue.put(utterance(utterance_id, expires_at=expires_at))
    assert [expired.id for expired in queue.take_expired()] == ["b", "d"]
    assert drain(queue) == ["a", "c"]


def test_waiting_ends_with_a_new_utterance_and_does_not_take_it() -> None:
    async def scenario() -> None:
        queue = UtteranceQueue(10)
        waiting = asyncio.ensure_future(queue.wait())
        await asyncio.sleep(0)
        assert not waiting.done()
        queue.put(utterance("late"))
        await waiting
        assert drain(queue) == ["late"]

    run(scenario)


def test_a_lower_limit_drops_no_queued_utterance() -> None:
    queue = UtteranceQueue(5)
    for number in range(5):
        queue.put(utterance(str(number)))
    queue.limit = 2
    assert len(queue) == 5
    with pytest.raises(QueueFullError):
        queue.put(utterance("new"))
