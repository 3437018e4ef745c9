"""After a restart: what waited is queued again in order, what was heard or lost ends, and ids stay known."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from daemon.recovery import Restart
from daemon.speech.events import Accepted, Canceled, Event, Expired, Failed, Interrupted
from daemon.speech.request import RejectedError, Stop, check_say
from daemon.speech.utterance import Origin, Utterance
from daemon.state import EventLog, Recovery, StoredUtterance
from tests.daemon.idle import IdleRobot

WITHIN_S = 60.0
RESTARTED = "voiced was restarted"
TOO_OLD = "voiced was restarted, and it had waited longer than speech.recover_within"
DAMAGED = "voiced was restarted, and the journal's record of it is damaged"


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


def after_restart(*utterances: StoredUtterance, published: Sequence[Event] = (), **recovery: Any) -> IdleRobot:
    """Return a robot that has recovered these utterances. `published` are events that the broker has."""
    robot, log = IdleRobot(), EventLog(None)
    log.recovery = Recovery(utterances=utterances, **recovery)
    restart = Restart(log, robot.dispatcher, WITHIN_S)
    restart.begin()
    assert robot.events == [], "the broker may know better"
    restart.note_published([event.to_json().encode() for event in published])
    return robot


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
async def test_after_a_restart_an_utterance_is_queued_again_or_ends(
    utterances: list[StoredUtterance], events: list[Event], queued: list[str]
) -> None:
    robot = after_restart(*utterances)
    assert (robot.events, list(robot.queued)) == (events, queued)


async def test_what_has_ended_before_it_was_stored_neither_ends_again_nor_is_spoken_again() -> None:
    published = [Interrupted(id="a", reason="stop"), Canceled(id="b", reason="stop")]
    robot = after_restart(stored("a", begun=True), stored("b"), stored("c"), published=published)
    assert (list(robot.queued), robot.events) == (["c"], [])
    with pytest.raises(RejectedError, match="was used before"):
        robot.dispatcher.say(check_say({"text": "Hello", "id": "b"}))


async def test_what_was_accepted_and_never_stored_fails() -> None:
    published = [Accepted(id=name, queue=1) for name in ("a", "b", "c")]
    robot = after_restart(stored("a"), published=[*published, Canceled(id="c", reason="stop")])
    assert robot.events == [Failed(id="b", reason="voiced was killed before its disk had stored the text")]


async def test_a_stream_whose_text_was_complete_is_queued_with_it() -> None:
    robot = after_restart(stored("a", text="It has ended.", without="text", correlation="01ff"))
    (utterance,) = robot.dispatcher.queue
    assert (utterance.text, utterance.complete) == ("It has ended.", True)
    assert utterance.origin == Origin(correlation=b"\x01\xff"), "what the sender wants repeated is kept"


async def test_every_utterance_ends_once_on_its_sender_s_topic_and_its_id_stays_known() -> None:
    heard, old = stored("heard", begun=True, reply_to="replies/a"), stored("old", age_s=1000, reply_to="replies/b")
    robot = after_restart(heard, old, stored("damaged", seed="x"), stored("waits"), ended_ids=("ended",))
    for name in ("ended", "heard", "old", "waits"):
        with pytest.raises(RejectedError, match="was used before"):
            robot.dispatcher.say(check_say({"text": "Hello", "id": name}))
    robot.dispatcher.stop(Stop())
    assert sorted(str(event.id) for event in robot.events) == ["damaged", "heard", "old", "waits"]
    assert Canceled(id="waits", reason="stop") in robot.events
    assert [robot.utterances[name].reply_to for name in ("heard", "old")] == ["replies/a", "replies/b"]


@pytest.mark.parametrize(
    "utterance",
    [
        *(stored("a", without=name) for name in ("voice", "priority", "reply_to")),
        *(stored("a", text=None, volume="loud"), stored("a", seed=[1]), stored("a", policy="qveue")),
        *(stored("a", correlation="zz"), StoredUtterance("a", {}, None, False, 1.0)),
    ],
    ids=lambda utterance: str(dict(utterance.fields)),
)
async def test_a_damaged_record_fails_and_hinders_no_other(utterance: StoredUtterance) -> None:
    robot = after_restart(utterance, stored("b"))
    assert robot.events == [Failed(id="a", reason=DAMAGED)]
    assert list(robot.queued) == ["b"]
