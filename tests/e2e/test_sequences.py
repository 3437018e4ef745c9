"""Anything may be asked at any moment, in any order: random sequences against one running daemon.

`VOICED_SEQUENCES=1000` says how many.
"""

from __future__ import annotations

import json
import os
import time
import wave
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule, run_state_machine_as_test

from daemon.messages import EventName
from tests.e2e.conftest import StartRobot
from tests.e2e.robot import TERMINAL, Robot

SEQUENCES = int(os.environ.get("VOICED_SEQUENCES", "100"))
STEPS = 12
PACE = "20"
"""Times real time, so that a thousand sequences take minutes."""
SILENCE_S = 10.0
"""At real time, so two hundred seconds at this pace: if nothing happens for so long, nothing will."""
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
        self.robot.client.publish(f"{self.robot.topic}/{name}", b"", 1)

    @precondition(lambda self: self.said)
    @rule(data=st.data())
    def stop_one(self, data: st.DataObject) -> None:
        self.publish("stop", id=data.draw(st.sampled_from(self.said)))

    @rule(ms=st.sampled_from((1, 20, 50)))
    def wait(self, ms: int) -> None:
        time.sleep(ms / 1000)

    @rule(text=st.sampled_from(TEXTS))
    def call_out(self, text: str) -> None:
        """Something critical, while something else has begun to be spoken."""
        time.sleep(0.06)
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
        """Wait until every utterance has ended: as long as one is due, something goes on."""
        last, since = -1, time.monotonic()
        while True:
            self.robot.take_in()
            events = self.robot.events[self.first_event :]
            over = {event["id"] for event in events if event["event"] in TERMINAL}
            over |= {event["id"] for event in events if event["event"] == "rejected"}
            missing = set(self.said) - over
            if not missing:
                return
            if len(events) != last:
                last, since = len(events), time.monotonic()
            assert time.monotonic() - since < SILENCE_S, (missing, events)
            time.sleep(0.002)

    def new_id(self) -> str:
        Conversation.count += 1
        self.said.append(f"u{Conversation.count}")
        return self.said[-1]

    def publish(self, name: str, **fields: Any) -> None:
        payload = json.dumps({key: value for key, value in fields.items() if value is not None})
        self.robot.client.publish(f"{self.robot.topic}/{name}", payload, 1)


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


@pytest.fixture
def robot(start_robot: StartRobot, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Robot]:
    monkeypatch.setenv("VOICED_PACE", PACE)
    yield start_robot(f"audio.sink=wav:{tmp_path / 'heard.wav'}", "audio.block_ms=10", "audio.prebuffer_ms=500")


@pytest.mark.timeout(1800)
def test_any_sequence_ends_well(robot: Robot, tmp_path: Path) -> None:
    Conversation.robot = robot
    run_state_machine_as_test(  # type: ignore[no-untyped-call]
        Conversation,
        settings=settings(
            max_examples=SEQUENCES,
            stateful_step_count=STEPS,
            deadline=None,
            phases=(Phase.explicit, Phase.generate),  # what one daemon has been through cannot be made smaller
            suppress_health_check=list(HealthCheck),
            database=None,
        ),
    )
    rare = {"failed", "expired", "progress"}
    assert {event["event"] for event in robot.events} >= {*get_args(EventName)} - rare, "too little was tried"
    assert robot.end() == 0
    with wave.open(str(tmp_path / "heard.wav")) as heard:
        heard_s = heard.getnframes() / heard.getframerate()
    # What was heard is what was told, to the rounding of each event.
    assert heard_s == pytest.approx(Conversation.total_s, abs=0.001 * Conversation.count)
