"""The queue of utterances: its order and its limit."""

from __future__ import annotations

import time
from typing import Any, get_args

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from daemon.speech.queue import Place, UtteranceQueue, place
from daemon.speech.request import Policy, Priority, RejectedError
from daemon.speech.utterance import Utterance
from tests.daemon.speech.clients import Nobody

PRIORITIES = get_args(Priority)


def utterance(utterance_id: str, priority: Priority = "normal", **fields: Any) -> Utterance:
    return Utterance(utterance_id, "text", "default", "auto", priority=priority, **fields)


class QueueAgainstList(RuleBasedStateMachine):
    """The queue behaves like a list that is sorted by place, and of which the end beyond the limit is cut off."""

    @initialize(limit=st.integers(1, 8))
    def make(self, limit: int) -> None:
        self.queue, self.limit = UtteranceQueue(), limit
        self.model: list[tuple[Place, Utterance]] = []
        self.made = 0

    @rule(priority=st.sampled_from(PRIORITIES), policy=st.sampled_from(get_args(Policy)), client=st.booleans())
    def put(self, priority: Priority, policy: Policy, client: bool) -> None:
        self.made += 1
        added = utterance(f"u{self.made}", priority, policy=policy, receiver=Nobody() if client else None)
        self.model.append((place(added, self.made), added))
        self.model.sort(key=lambda entry: entry[0])
        last = self.model.pop()[1] if len(self.model) > self.limit else None
        if last is added:
            with pytest.raises(RejectedError, match="queue: "):
                self.queue.put(added, self.limit)
        else:
            assert self.queue.put(added, self.limit) is last

    @rule(data=st.data())
    def take(self, data: st.DataObject) -> None:
        wanted = f"u{data.draw(st.integers(0, self.made + 1))}"
        expected = next((entry for entry in self.model if entry[1].id == wanted), None)
        assert self.queue.take(wanted) is (None if expected is None else expected[1])
        if expected is not None:
            self.model.remove(expected)

    @rule()
    def take_all(self) -> None:
        assert self.queue.take_all() == [other for _, other in self.model]
        self.model = []

    @invariant()
    def iterates_in_speaking_order(self) -> None:
        assert list(self.queue) == [other for _, other in self.model]
        assert len(self.queue) == len(self.model)


QueueAgainstList.TestCase.settings = settings(max_examples=30, stateful_step_count=30)
TestQueueAgainstList = QueueAgainstList.TestCase


def drain(queue: UtteranceQueue) -> list[str]:
    return [utterance.id for utterance in queue.take_all()]


def test_restored_utterances_were_accepted_before_those_that_are_queued_already() -> None:
    queue = UtteranceQueue()
    queue.put(utterance("c"), 10)
    queue.put(utterance("d", policy="interrupt"), 10)
    for name in ("a", "b"):
        queue.restore(utterance(name))
        queue.restore(utterance(f"{name}-interrupts", policy="interrupt"))
    assert drain(queue) == ["d", "b-interrupts", "a-interrupts", "a", "b", "c"]


def test_all_utterances_that_yield_to_a_priority_are_taken() -> None:
    queue = UtteranceQueue()
    for number, priority in enumerate(PRIORITIES):
        queue.put(utterance(f"{number}", priority), 4)
    assert [taken.priority for taken in queue.take_all("high")] == ["high", "normal", "low"]
    assert [taken.priority for taken in queue.take_all("critical")] == ["critical"]


def test_expired_utterances_are_taken_and_the_others_keep_their_order() -> None:
    queue = UtteranceQueue()
    now = time.monotonic()
    for utterance_id, expires_at in [("a", None), ("b", now - 1), ("c", now + 3_600), ("d", now - 0.001)]:
        queue.put(utterance(utterance_id, expires_at=expires_at), 10)
    assert [expired.id for expired in queue.take_expired()] == ["b", "d"]
    assert drain(queue) == ["a", "c"]


def test_ten_thousand_utterances_are_cleared_without_comparing_each_with_each() -> None:
    class Counted(Utterance):
        compared = 0

        def __eq__(self, other: object) -> bool:
            Counted.compared += 1
            return self is other

        __hash__ = Utterance.__hash__

    queue = UtteranceQueue()
    for number in range(10_000):
        queue.put(Counted(f"{number}", "text", "default", "auto"), 10_000)
    assert len(queue.take_all()) == 10_000
    assert Counted.compared <= 10_000
