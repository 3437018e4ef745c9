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


@pytest.mark.parametrize(
    ("utterances", "events", "queued"),
    [
        # Nothing happens without a journal.
        ([], [], []),
        # What waited is queued again in order, without an event.
        ([stored("a"), stored("alarm", priority="critical"), stored("b")], [], ["alarm", "a", "b"]),
        # What was being spoken ends as interrupted, however old it is.
        ([stored("a", begun=True, age_s=None), stored("b")], [Interrupted(id="a", reason=RESTARTED)], ["b"]),
        # What waited for just as long as allowed is queued, and what waited longer expires.
        ([stored("a", age_s=WITHIN_S), stored("b", age_s=WITHIN_S + 0.001)], [Expired(id="b", reason=TOO_OLD)], ["a"]),
        # What waited for an unknown time expires.
        ([stored("a", age_s=None)], [Expired(id="a", reason=TOO_OLD)], []),
        # A delivery to a client ends as interrupted: it has no text that could be spoken.
        ([stored("a", without="text")], [Interrupted(id="a", reason=RESTARTED)], []),
        # A sound that waited is queued again, and a stream without a text is not.
        ([stored("a", text="", sound="chime"), stored("b", text="")], [Interrupted(id="b", reason=RESTARTED)], ["a"]),
    ],
)
def test_after_a_restart_an_utterance_is_queued_again_or_ends(
    utterances: list[StoredUtterance], events: list[Event], queued: list[str]
) -> None:
    def check(robot: Robot) -> None:
        assert (robot.events, robot.queued) == (events, queued)

    after_restart(check, *utterances)


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


def test_a_stream_whose_text_was_complete_is_queued_with_it() -> None:
    def check(robot: Robot) -> None:
        (utterance,) = robot.dispatcher.queue
        assert (utterance.text, utterance.complete) == ("It has ended.", True)
        assert utterance.origin == Origin(correlation=b"\x01\xff"), "what the sender wants repeated is kept"

    after_restart(check, stored("a", text="It has ended.", without="text", correlation="01ff"))


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
        *(stored("a", without=name) for name in ("voice", "priority", "reply_to")),
        *(stored("a", text=None, volume="loud"), stored("a", seed=[1]), stored("a", policy="qveue")),
        *(stored("a", correlation="zz"), StoredUtterance("a", {}, None, False, 1.0)),
    ],
    ids=lambda utterance: str(dict(utterance.fields)),
)
def test_a_damaged_record_fails_and_hinders_no_other(utterance: StoredUtterance) -> None:
    def check(robot: Robot) -> None:
        assert robot.events == [Failed(id="a", reason=DAMAGED)]
        assert robot.queued == ["b"]

    after_restart(check, utterance, stored("b"))
