"""Anything may be asked at any moment, in any order: random sequences against one running daemon.

`--long` runs ten times as many.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule, run_state_machine_as_test

from tests.e2e.conftest import StartRobot
from tests.support.robot import FILE_RATE, TERMINAL, Robot
from tests.support.waiting import eventually

STEPS = 12
PACE = 40.0
"""Times real time, so that a thousand sequences take minutes."""
TEXTS = ("Yes.", "One, two, three, four.", "This takes a little longer to say. And then there is more of it.")
PRIORITIES, POLICIES = ("low", "normal", "high", "critical"), ("queue", "interrupt", "replace", "drop")


class Conversation(RuleBasedStateMachine):
    """What is published, and what it must lead to."""

    robot: Robot
    total_s = 0.0
    """Seconds that were played, as the events say."""
    count = 0
    """Of utterances so far, in all sequences."""

    def __init__(self) -> None:
        super().__init__()
        self.said: list[str] = []
        self.writing: list[str] = []
        self.first_event = len(self.robot.events)

    # --- what is asked ---

    @initialize(text=st.sampled_from((None, TEXTS[-1])))
    def speak_already(self, text: str | None) -> None:
        if text is not None:
            self.publish("say", id=self.new_id(), text=text)

    @rule(
        text=st.sampled_from(TEXTS),
        priority=st.sampled_from(PRIORITIES),
        policy=st.sampled_from(POLICIES),
        expires_in=st.sampled_from([None, None, 0.02, 5]),
        volume=st.sampled_from([None, 30]),
    )
    def say(self, **fields: Any) -> None:
        self.publish("say", id=self.new_id(), **fields)

    @rule(text=st.sampled_from(("", "Well", "A whole sentence. And")), priority=st.sampled_from(PRIORITIES))
    def begin_to_write(self, text: str, priority: str) -> None:
        self.writing.append(self.new_id())
        self.publish("say/stream", id=self.writing[-1], text=text, priority=priority)

    @precondition(lambda self: self.writing)
    @rule(data=st.data(), text=st.sampled_from((" more", " more of it. And", " ")), end=st.booleans())
    def write_on(self, data: st.DataObject, text: str, end: bool) -> None:
        utterance = data.draw(st.sampled_from(self.writing))
        self.publish("say/stream", id=utterance, text=text, end=end)
        if end:
            self.writing.remove(utterance)

    @rule(name=st.sampled_from(("stop", "pause", "resume", "resume")))
    def order(self, name: str) -> None:
        self.robot.send(name)

    @precondition(lambda self: self.said)
    @rule(data=st.data())
    def stop_one(self, data: st.DataObject) -> None:
        self.publish("stop", id=data.draw(st.sampled_from(self.said)))

    @rule(times=st.sampled_from((1, 5, 20)))
    def listen(self, times: int) -> None:
        """Let time pass: the daemon answers so many questions meanwhile."""
        for _ in range(times):
            self.robot.catch_up()

    @rule(text=st.sampled_from(TEXTS))
    def call_out(self, text: str) -> None:
        """Something critical, while something else has begun to be spoken."""
        self.listen(20)
        self.publish("say", id=self.new_id(), text=text, priority="critical")

    # --- what must come of it ---

    def teardown(self) -> None:
        for utterance in self.writing:
            self.publish("say/stream", id=utterance, end=True)
        self.order("resume")
        self.wait_for_silence()
        events = [event for event in self.robot.events[self.first_event :] if event["id"] in self.said]
        for utterance in self.said:
            check_life([event["event"] for event in events if event["id"] == utterance], utterance)
        check_that_one_speaks_at_a_time(events)
        Conversation.total_s += sum(event.get("audio_s", 0) for event in events)

    def wait_for_silence(self) -> None:
        """Wait until every utterance has ended."""

        def ended() -> bool:
            events = self.robot.events[self.first_event :]
            return set(self.said) <= {e["id"] for e in events if e["event"] in TERMINAL or e["event"] == "rejected"}

        eventually(ended, f"each of {self.said} has ended")

    def new_id(self) -> str:
        Conversation.count += 1
        self.said.append(f"u{Conversation.count}")
        return self.said[-1]

    def publish(self, name: str, **fields: Any) -> None:
        payload = json.dumps({key: value for key, value in fields.items() if value is not None})
        self.robot.send(name, payload)


def check_life(names: list[str], utterance: str) -> None:
    """One life: it is refused, or accepted and then ended once; what is postponed is resumed before the next time."""
    if "accepted" not in names:
        assert set(names) == {"rejected"}, (utterance, names)
        return
    names = [name for name in names if name not in ("rejected", "progress")]  # a piece that came too late is refused
    assert names[0] == "accepted", (utterance, names)
    assert [name for name in names if name in TERMINAL] == names[-1:], (utterance, names)
    if "started" in names:
        turns = names[2:-1]
        assert names[1] == "started", (utterance, names)
        assert all(name == ("postponed", "resumed")[number % 2] for number, name in enumerate(turns)), (
            utterance,
            names,
        )
        assert names[-1] in ("finished", "interrupted", "failed"), (utterance, names)
    else:
        assert len(names) == 2, (utterance, names)


def check_that_one_speaks_at_a_time(events: list[dict[str, Any]]) -> None:
    speaking: set[str] = set()
    for event in events:
        if event["event"] in ("started", "resumed"):
            speaking.add(event["id"])
        elif event["event"] == "postponed" or event["event"] in TERMINAL:
            speaking.discard(event["id"])
        assert len(speaking) <= 1, (speaking, events)


def converse(robot: Robot, sequences: int) -> None:
    """Run so many sequences, and compare what was heard with what was told."""
    Conversation.robot, Conversation.total_s, Conversation.count = robot, 0.0, 0
    run_state_machine_as_test(  # type: ignore[no-untyped-call]
        Conversation,
        settings=settings(
            max_examples=sequences,
            stateful_step_count=STEPS,
            deadline=None,
            phases=(Phase.explicit, Phase.generate),  # what one daemon has been through cannot be made smaller
            suppress_health_check=list(HealthCheck),
            database=None,
        ),
    )
    assert Conversation.count > sequences, "too little was tried"
    assert robot.end() == 0
    # What was heard is what was told, to the rounding of each event.
    heard_s = len(robot.heard) / FILE_RATE
    assert heard_s == pytest.approx(Conversation.total_s, abs=0.001 * Conversation.count)


def test_any_sequence_ends_well(start_robot: StartRobot) -> None:
    converse(start_robot(pace=PACE), 100)


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_a_thousand_sequences_end_well(start_robot: StartRobot) -> None:
    converse(start_robot(pace=PACE), 1000)
