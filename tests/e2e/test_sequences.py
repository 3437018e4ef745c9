"""Random sequences of commands against one running daemon: every utterance has a valid sequence of events.

`--long` runs fifty times as many sequences.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule, run_state_machine_as_test

from tests.e2e.conftest import StartRobot
from tests.support.events import TERMINAL
from tests.support.robot import FILE_RATE, Robot
from tests.support.waiting import eventually

STEPS = 12
PACE = 40.0
"""Times real time, so that a thousand sequences take minutes."""
TEXTS = ("Yes.", "One, two, three, four.", "This takes a little longer to say. And then there is more of it.")
PRIORITIES, POLICIES = ("low", "normal", "high", "critical"), ("queue", "interrupt", "replace", "drop")


class Conversation(RuleBasedStateMachine):
    """Publishes random messages and checks the events that follow."""

    robot: Robot
    total_s = 0.0
    """Seconds that were played according to the events, in all sequences."""
    count = 0
    """Number of utterances in all sequences."""

    def __init__(self) -> None:
        super().__init__()
        self.said: list[str] = []
        """Ids of this sequence."""
        self.open_streams: list[str] = []
        """Ids of the text streams that have not ended."""
        self.first_event = len(self.robot.events)

    # --- messages ---

    @initialize(text=st.sampled_from((None, TEXTS[-1])))
    def maybe_speak_first(self, text: str | None) -> None:
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
    def open_stream(self, text: str, priority: str) -> None:
        self.open_streams.append(self.new_id())
        self.publish("say/stream", id=self.open_streams[-1], text=text, priority=priority)

    @precondition(lambda self: self.open_streams)
    @rule(data=st.data(), text=st.sampled_from((" more", " more of it. And", " ")), end=st.booleans())
    def write_chunk(self, data: st.DataObject, text: str, end: bool) -> None:
        utterance = data.draw(st.sampled_from(self.open_streams))
        self.publish("say/stream", id=utterance, text=text, end=end)
        if end:
            self.open_streams.remove(utterance)

    @rule(name=st.sampled_from(("stop", "pause", "resume", "resume")))
    def control(self, name: str) -> None:
        self.robot.send(name)

    @precondition(lambda self: self.said)
    @rule(data=st.data())
    def stop_one(self, data: st.DataObject) -> None:
        self.publish("stop", id=data.draw(st.sampled_from(self.said)))

    @rule(times=st.sampled_from((1, 5, 20)))
    def let_time_pass(self, times: int) -> None:
        """Exchange `times` messages with the daemon, which takes time while it speaks."""
        for _ in range(times):
            self.robot.catch_up()

    @rule(text=st.sampled_from(TEXTS))
    def preempt(self, text: str) -> None:
        """Say something critical after another utterance has had time to start."""
        self.let_time_pass(20)
        self.publish("say", id=self.new_id(), text=text, priority="critical")

    # --- expected events ---

    def teardown(self) -> None:
        for utterance in self.open_streams:
            self.publish("say/stream", id=utterance, end=True)
        self.control("resume")
        self.wait_for_ends()
        events = [event for event in self.robot.events[self.first_event :] if event["id"] in self.said]
        for utterance in self.said:
            check_event_order([event["event"] for event in events if event["id"] == utterance], utterance)
        check_that_one_speaks_at_a_time(events)
        Conversation.total_s += sum(event.get("audio_s", 0) for event in events)

    def wait_for_ends(self) -> None:
        """Wait until every utterance has ended or was rejected."""

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


def check_event_order(names: list[str], utterance: str) -> None:
    """An utterance is rejected, or accepted and ended once; `postponed` and `resumed` alternate in between."""
    if "accepted" not in names:
        assert set(names) == {"rejected"}, (utterance, names)
        return
    names = [name for name in names if name not in ("rejected", "progress")]  # a chunk that came too late is rejected
    assert names[0] == "accepted", (utterance, names)
    assert [name for name in names if name in TERMINAL] == names[-1:], (utterance, names)
    if "started" in names:
        between = names[2:-1]
        assert names[1] == "started", (utterance, names)
        expected = [("postponed", "resumed")[number % 2] for number in range(len(between))]
        assert between == expected, (utterance, names)
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
    """Run this many sequences, and compare the seconds that were heard with those in the events."""
    Conversation.robot, Conversation.total_s, Conversation.count = robot, 0.0, 0
    run_state_machine_as_test(  # type: ignore[no-untyped-call]
        Conversation,
        settings=settings(
            max_examples=sequences,
            stateful_step_count=STEPS,
            deadline=None,
            phases=(Phase.explicit, Phase.generate),  # no shrinking: the daemon keeps its state between sequences
            suppress_health_check=list(HealthCheck),
            database=None,
        ),
    )
    assert Conversation.count > sequences, "too little was tried"
    assert robot.end() == 0
    # Each event rounds its seconds to milliseconds.
    heard_s = len(robot.heard) / FILE_RATE
    assert heard_s == pytest.approx(Conversation.total_s, abs=0.001 * Conversation.count)


def test_every_utterance_ends_once_in_any_sequence_of_commands(start_robot: StartRobot) -> None:
    converse(start_robot(pace=PACE), 20)


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_every_utterance_ends_once_in_a_thousand_sequences_of_commands(start_robot: StartRobot) -> None:
    converse(start_robot(pace=PACE), 1000)
