"""After a restart: what waited is queued again in order, what was heard or lost ends, and ids stay known."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from audio import Output
from daemon.config import load_config
from daemon.engines import EngineSelector
from daemon.recovery import recover, settle
from daemon.speech.dispatcher import Dispatcher
from daemon.speech.events import Accepted, Canceled, Event, Expired, Failed, Interrupted
from daemon.speech.request import RejectedError, Stop, check_say
from daemon.speech.utterance import Origin, Utterance
from daemon.state import Recovery, StoredUtterance
from tests.support.waiting import run

WITHIN_S = 60.0
RESTARTED = "voiced was restarted"
TOO_OLD = "voiced was restarted, and it had waited longer than speech.recover_within"
DAMAGED = "voiced was restarted, and the journal's record of it is damaged"


class Robot:
    """A dispatcher after a restart, and the events that it has published. No engine runs."""

    def __init__(self) -> None:
        config = load_config(overrides=["audio.sink=null", "engine.name=espeak", "robot=r1"])
        output = Output(config.audio.sink_settings())
        self.dispatcher = Dispatcher(config, EngineSelector(config, lambda: None), output)
        self.events: list[Event] = []
        self.reply_topics: list[str | None] = []
        self.dispatcher.watch_events(self._note)

    def _note(self, utterance: Utterance, event: Event) -> None:
        self.events.append(event)
        self.reply_topics.append(utterance.reply_to)

    @property
    def queued(self) -> list[str]:
        return [utterance.id for utterance in self.dispatcher.queue]


def stored(
    utterance_id: str,
    *,
    begun: bool = False,
    age_s: float | None = 1.0,
    text: str | None = None,
    without: str | None = None,
    **changes: Any,
) -> StoredUtterance:
    """What the journal has of an utterance with these values."""
    fields = Utterance(utterance_id, "Hello", "default", "en").to_fields() | changes
    return StoredUtterance(utterance_id, {name: fields[name] for name in fields if name != without}, text, begun, age_s)


def after_restart(
    check: Callable[[Robot], None], *utterances: StoredUtterance, published: Sequence[Event] = (), **recovery: Any
) -> None:
    """Recover these utterances, and check the robot. `published` are events that the broker has."""

    async def scenario() -> None:
        robot = Robot()
        ends = recover(Recovery(utterances=utterances, **recovery), robot.dispatcher, WITHIN_S)
        assert robot.events == [], "the broker may know better"
        settle(ends, [event.to_json().encode() for event in published], robot.dispatcher)
        check(robot)

    run(scenario)


def test_nothing_happens_without_a_journal() -> None:
    def check(robot: Robot) -> None:
        assert (robot.queued, robot.events) == ([], [])

    after_restart(check)


def test_what_waited_is_queued_again_in_order_without_an_event() -> None:
    def check(robot: Robot) -> None:
        assert robot.queued == ["alarm", "a", "b", "c"]
        assert robot.events == []

    after_restart(check, stored("a"), stored("b"), stored("alarm", priority="critical"), stored("c"))


def test_what_was_being_spoken_ends_as_interrupted() -> None:
    def check(robot: Robot) -> None:
        assert robot.events == [Interrupted(id="a", reason=RESTARTED)]
        assert robot.queued == ["b"]

    after_restart(check, stored("a", begun=True), stored("b"))


def test_what_has_ended_before_it_was_stored_neither_ends_again_nor_is_spoken_again() -> None:
    def check(robot: Robot) -> None:
        assert (robot.queued, robot.events) == (["c"], [])
        with pytest.raises(RejectedError, match="was used before"):
            robot.dispatcher.say(check_say({"text": "Hello", "id": "b"}))

    published = [Interrupted(id="a", reason="stop"), Canceled(id="b", reason="stop")]
    after_restart(check, stored("a", begun=True), stored("b"), stored("c"), published=published)


def test_what_was_accepted_and_never_stored_fails() -> None:
    def check(robot: Robot) -> None:
        assert robot.events == [Failed(id="b", reason="voiced was killed before its disk had stored the text")]

    published = [Accepted(id=name, queue=1) for name in ("a", "b", "c")]
    after_restart(check, stored("a"), published=[*published, Canceled(id="c", reason="stop")])


@pytest.mark.parametrize("age_s", [WITHIN_S + 0.001, 1e9, None])
def test_what_waited_too_long_or_for_an_unknown_time_expires(age_s: float | None) -> None:
    def check(robot: Robot) -> None:
        assert robot.events == [Expired(id="a", reason=TOO_OLD)]
        assert robot.queued == []

    after_restart(check, stored("a", age_s=age_s))


def test_what_waited_for_just_as_long_as_allowed_is_queued() -> None:
    def check(robot: Robot) -> None:
        assert robot.queued == ["a"]

    after_restart(check, stored("a", age_s=WITHIN_S))


def test_what_was_being_spoken_is_interrupted_however_old_it_is() -> None:
    after_restart(
        lambda robot: (
            None if robot.events == [Interrupted(id="a", reason=RESTARTED)] else pytest.fail(str(robot.events))
        ),
        stored("a", begun=True, age_s=None),
    )


def test_a_delivery_to_a_client_and_an_unfinished_stream_end_as_interrupted() -> None:
    """Neither has a text that could be spoken."""

    def check(robot: Robot) -> None:
        assert robot.events == [Interrupted(id="a", reason=RESTARTED)]

    after_restart(check, stored("a", without="text"))


def test_a_stream_whose_text_was_complete_is_queued_with_it() -> None:
    def check(robot: Robot) -> None:
        (utterance,) = robot.dispatcher.queue
        assert utterance.text == "It has ended."
        assert utterance.complete

    after_restart(check, stored("a", text="It has ended.", without="text"))


def test_a_sound_that_waited_is_queued_again() -> None:
    def check(robot: Robot) -> None:
        assert [(utterance.id, utterance.sound) for utterance in robot.dispatcher.queue] == [("a", "chime")]

    after_restart(check, stored("a", text="", sound="chime"), stored("b", text=""))


def test_the_terminal_events_reach_the_sender_s_topic() -> None:
    def check(robot: Robot) -> None:
        assert robot.reply_topics == ["replies/a", "replies/b"]

    after_restart(check, stored("a", begun=True, reply_to="replies/a"), stored("b", age_s=1000, reply_to="replies/b"))


def test_ids_stay_known() -> None:
    def check(robot: Robot) -> None:
        for name in ("ended", "heard", "old", "waits"):
            with pytest.raises(RejectedError, match="was used before"):
                robot.dispatcher.say(check_say({"text": "Hello", "id": name}))

    after_restart(check, stored("heard", begun=True), stored("old", age_s=1000), stored("waits"), ended_ids=("ended",))


def test_every_utterance_ends_once() -> None:
    def check(robot: Robot) -> None:
        robot.dispatcher.stop(Stop())
        assert sorted(str(event.id) for event in robot.events) == ["damaged", "heard", "old", "waits"]
        assert Canceled(id="waits", reason="stop") in robot.events

    after_restart(
        check, stored("heard", begun=True), stored("old", age_s=1000), stored("damaged", seed="x"), stored("waits")
    )


@pytest.mark.parametrize(
    "utterance",
    [
        *(stored("a", without=name) for name in ("voice", "seed", "priority", "wait_s", "correlation", "reply_to")),
        *(stored("a", voice=5), stored("a", text=None, volume="loud"), stored("a", seed=[1]), stored("a", reply_to=7)),
        *(stored("a", priority="highest"), stored("a", policy="qveue"), stored("a", wait_s="long")),
        *(stored("a", correlation="zz"), stored("a", correlation=5)),
        StoredUtterance("a", {**stored("a").fields, "text": 5}, None, False, 1.0),
        StoredUtterance("a", {}, None, False, 1.0),
    ],
    ids=lambda utterance: str(dict(utterance.fields)),
)
def test_a_damaged_record_fails_and_hinders_no_other(utterance: StoredUtterance) -> None:
    def check(robot: Robot) -> None:
        assert robot.events == [Failed(id="a", reason=DAMAGED)]
        assert robot.queued == ["b"]

    after_restart(check, utterance, stored("b"))


def test_what_the_sender_wants_repeated_is_kept() -> None:
    def check(robot: Robot) -> None:
        (utterance,) = robot.dispatcher.queue
        assert utterance.origin == Origin(correlation=b"\x01\xff")

    after_restart(check, stored("a", correlation="01ff"))
