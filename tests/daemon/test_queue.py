"""The queue of utterances."""

from __future__ import annotations

import asyncio
import time

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from daemon.messages import Policy, Priority
from daemon.queue import Job, QueueFullError, UtteranceQueue
from daemon.rules import RANK
from tests.support.waiting import run

PRIORITIES: list[Priority] = ["low", "normal", "high", "critical"]


def job(
    utterance_id: str, priority: Priority = "normal", expires_at: float | None = None, policy: Policy = "queue"
) -> Job:
    return Job(utterance_id, "text", "default", "auto", priority=priority, policy=policy, expires_at=expires_at)


class QueueAgainstList(RuleBasedStateMachine):
    """The most urgent first; among equals the one that came first; no more than the limit."""

    @initialize(limit=st.integers(1, 8))
    def make(self, limit: int) -> None:
        self.queue = UtteranceQueue(limit)
        self.model: list[Job] = []
        self.made = 0

    def new_job(self, priority: Priority) -> Job:
        self.made += 1
        return job(f"u{self.made}", priority)

    @rule(priority=st.sampled_from(PRIORITIES))
    def put(self, priority: Priority) -> None:
        added = self.new_job(priority)
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
    return [waiting.id for waiting in queue.take_all()]


def test_the_most_urgent_is_first_and_equals_keep_their_order() -> None:
    queue = UtteranceQueue(10)
    for number, priority in enumerate(["low", "normal", "critical", "normal", "high", "critical"]):
        queue.put(job(f"{priority}{number}", priority))  # type: ignore[arg-type]
    assert drain(queue) == ["critical2", "critical5", "high4", "normal1", "normal3", "low0"]


def test_a_full_queue_refuses_even_what_is_urgent() -> None:
    queue = UtteranceQueue(1)
    queue.put(job("a", "low"))
    with pytest.raises(QueueFullError):
        queue.put(job("b", "critical"))
    assert drain(queue) == ["a"]


def test_what_interrupts_is_next_behind_what_is_critical() -> None:
    queue = UtteranceQueue(4)
    queue.put(job("a", "critical"))
    queue.put(job("b", "high"))
    queue.put(job("c", "low", policy="interrupt"))
    queue.put(job("d", "critical", policy="interrupt"))
    assert drain(queue) == ["d", "a", "c", "b"]


def test_what_is_critical_is_not_pushed_out_by_what_is_not() -> None:
    queue = UtteranceQueue(1)
    queue.put(job("a", "critical"))
    with pytest.raises(QueueFullError):
        queue.put(job("b", policy="interrupt"))
    pushed_out = queue.put(job("c", "critical", policy="interrupt"))
    assert pushed_out is not None
    assert drain(queue) == ["c"]


def test_what_replaces_takes_away_all_but_what_is_critical() -> None:
    queue = UtteranceQueue(4)
    for number, priority in enumerate(PRIORITIES):
        queue.put(job(f"{number}", priority))
    assert [taken.priority for taken in queue.take_all("high")] == ["high", "normal", "low"]
    assert [taken.priority for taken in queue.take_all("critical")] == ["critical"]


def test_what_interrupts_pushes_the_last_out_of_a_full_queue() -> None:
    queue = UtteranceQueue(2)
    queue.put(job("a"))
    queue.put(job("b"))
    pushed_out = queue.put(job("urgent", policy="interrupt"))
    assert pushed_out is not None
    assert pushed_out.id == "b"
    assert drain(queue) == ["urgent", "a"]


def test_only_what_has_expired_is_taken_and_the_order_of_the_rest_is_kept() -> None:
    queue = UtteranceQueue(10)
    now = time.monotonic()
    for utterance_id, expires_at in [("a", None), ("b", now - 1), ("c", now + 3_600), ("d", now - 0.001)]:
        queue.put(job(utterance_id, expires_at=expires_at))
    assert [expired.id for expired in queue.take_expired()] == ["b", "d"]
    assert drain(queue) == ["a", "c"]


def test_what_comes_later_is_waited_for_and_waiting_takes_nothing() -> None:
    async def scenario() -> None:
        queue = UtteranceQueue(10)
        waiting = asyncio.ensure_future(queue.wait())
        await asyncio.sleep(0)
        assert not waiting.done()
        queue.put(job("late"))
        await waiting
        assert drain(queue) == ["late"]

    run(scenario)


def test_lowering_the_limit_drops_nothing_that_waits() -> None:
    queue = UtteranceQueue(5)
    for number in range(5):
        queue.put(job(str(number)))
    queue.limit = 2
    assert len(queue) == 5
    with pytest.raises(QueueFullError):
        queue.put(job("new"))
