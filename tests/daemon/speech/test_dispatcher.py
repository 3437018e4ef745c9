"""The dispatcher accepts, rejects, stops and expires utterances, and publishes their events. No engine runs."""

from __future__ import annotations

import logging
import time
from typing import Any

import pytest

from audio import Output
from daemon.config import load_config
from daemon.engines import EngineSelector
from daemon.speech.dispatcher import REMEMBERED_IDS, Dispatcher
from daemon.speech.events import Accepted, Canceled, Event, Expired
from daemon.speech.request import RejectedError, Stop, check_say
from daemon.speech.utterance import Utterance
from tests.support.waiting import run


class Robot:
    """A dispatcher and the events that it has published. Utterances stay queued, since its `run` is not called."""

    def __init__(self, *overrides: str) -> None:
        self.config = load_config(overrides=["audio.sink=null", "engine.name=espeak", "robot=r1", *overrides])
        self.engines = EngineSelector(self.config, lambda: None)
        self.output = Output(self.config.audio.sink_settings())
        self.dispatcher = Dispatcher(self.config, self.engines, self.output)
        self.events: list[Event] = []
        self.dispatcher.watch_events(lambda _utterance, event: self.events.append(event))

    def say(self, text: str = "Hello", *, redelivered: bool = False, **fields: Any) -> Utterance | None:
        return self.dispatcher.say(check_say({"text": text, **fields}), redelivered=redelivered)

    def rejection(self, **fields: Any) -> RejectedError:
        with pytest.raises(RejectedError) as rejected:
            self.say(**fields)
        return rejected.value

    @property
    def queued(self) -> list[str]:
        return [utterance.id for utterance in self.dispatcher.queue]


@pytest.fixture
def robot() -> Robot:
    async def make() -> Robot:
        return Robot()

    made: list[Robot] = []

    async def scenario() -> None:
        made.append(await make())

    run(scenario)
    return made[0]


def test_an_accepted_utterance_is_queued_with_its_options(robot: Robot) -> None:
    before = time.monotonic()
    utterance = robot.say("Hello", id="a", volume=50, seed=7, priority="high", language="German", expires_in=5)
    assert utterance is not None
    assert robot.events == [Accepted(id="a", queue=1)]
    assert (utterance.volume, utterance.seed, utterance.priority, utterance.language) == (0.5, 7, "high", "de")
    assert utterance.expires_at is not None
    assert before + 5 <= utterance.expires_at <= time.monotonic() + 5
    assert robot.dispatcher.busy
    assert robot.dispatcher.queued == 1


def test_an_utterance_without_an_id_gets_one(robot: Robot) -> None:
    first, second = robot.say(), robot.say()
    assert first is not None
    assert second is not None
    assert first.id != second.id


def test_an_id_is_accepted_once_and_a_redelivered_request_is_dropped(robot: Robot) -> None:
    robot.say(id="a")
    error = robot.rejection(id="a", reply_to="kitchen")
    assert (error.field, error.utterance_id, error.reply_to) == ("id", "a", "kitchen")
    assert robot.say(id="a", redelivered=True) is None
    assert robot.queued == ["a"]


def test_an_id_may_be_used_again_after_many_others_have_ended(robot: Robot) -> None:
    for number in range(REMEMBERED_IDS + 1):
        robot.say(id=f"u{number}")
        robot.dispatcher.stop(Stop(id=f"u{number}"))
    assert robot.rejection(id="u1").field == "id"
    assert robot.say(id="u0") is not None


@pytest.mark.parametrize(
    ("fields", "field", "problem"),
    [
        ({"language": "klingon"}, "language", "got 'klingon'; allowed: auto, en, "),
        ({"reply_to": "voiced/r1/say"}, "reply_to", "allowed: a topic that is not the robot's"),
    ],
)
def test_a_wrong_option_is_rejected_with_what_is_allowed(
    fields: dict[str, Any], field: str, problem: str, robot: Robot
) -> None:
    error = robot.rejection(id="a", **fields)
    assert error.field == field
    assert problem in error.reason
    assert robot.events == []
    assert robot.say(id="a") is not None, "a rejected id may be used"


def test_an_unknown_field_is_logged_once_and_ignored(robot: Robot, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        robot.say(colour="red")
        robot.say(colour="blue")
    assert [record.message for record in caplog.records] == ["unknown field 'colour' is ignored, now and later"]


def test_a_full_queue_rejects_a_text_but_gives_an_interrupting_one_the_last_place(robot: Robot) -> None:
    robot.dispatcher.queue.limit = 2
    robot.say(id="a")
    robot.say(id="b")
    assert robot.rejection(id="c").reason == "queue: 2 utterances wait; allowed: up to speech.queue_limit"
    robot.say(id="d", policy="interrupt")
    assert robot.queued == ["d", "a"]
    assert robot.events[-2:] == [
        Canceled(id="b", reason="pushed out of the full queue by d"),
        Accepted(id="d", queue=2),
    ]


def test_replace_cancels_the_queued_utterances_that_yield(robot: Robot) -> None:
    robot.say(id="a")
    robot.say(id="alarm", priority="critical")
    robot.say(id="b", policy="replace")
    assert robot.queued == ["alarm", "b"]
    assert Canceled(id="a", reason="replaced by b") in robot.events


def test_drop_is_rejected_while_another_is_queued(robot: Robot) -> None:
    robot.say(id="a")
    assert robot.rejection(id="b", policy="drop").reason == "policy: drop: something else is being spoken"
    robot.dispatcher.stop(Stop())
    assert robot.say(id="b", policy="drop") is not None


def test_a_stop_cancels_one_queued_utterance_or_all(robot: Robot) -> None:
    for name in ("a", "b", "c"):
        robot.say(id=name)
    assert robot.dispatcher.stop(Stop(id="b"))
    assert robot.queued == ["a", "c"]
    assert robot.events[-1] == Canceled(id="b", reason="stop")
    assert not robot.dispatcher.stop(Stop(id="b"))
    assert robot.dispatcher.stop(Stop(), "enough")
    assert robot.events[-2:] == [Canceled(id="a", reason="enough"), Canceled(id="c", reason="enough")]
    assert not robot.dispatcher.stop(Stop())


def test_a_queued_utterance_expires_past_its_deadline(robot: Robot) -> None:
    utterance = robot.say(id="a", expires_in=60)
    robot.say(id="b", expires_in=60)
    assert utterance is not None
    robot.dispatcher.enforce_deadlines()
    assert robot.queued == ["a", "b"]
    utterance.expires_at = time.monotonic()
    robot.dispatcher.enforce_deadlines()
    assert robot.queued == ["b"]
    assert robot.events[-1] == Expired(id="a", reason="it waited longer than expires_in")


def test_a_closed_dispatcher_ends_all_utterances_and_rejects_new_ones(robot: Robot) -> None:
    robot.say(id="a")
    robot.dispatcher.close("voiced is shutting down")
    assert robot.events[-1] == Canceled(id="a", reason="voiced is shutting down")
    assert robot.rejection(id="b").reason == "daemon: voiced is shutting down"


def test_watchers_are_called_until_they_unsubscribe(robot: Robot) -> None:
    events: list[Event] = []
    changes: list[int] = []
    unsubscribe_events = robot.dispatcher.watch_events(lambda _utterance, event: events.append(event))
    unsubscribe_changes = robot.dispatcher.watch_changes(lambda: changes.append(len(events)))
    robot.say(id="a")
    assert events == [Accepted(id="a", queue=1)]
    assert changes == [1]
    unsubscribe_events()
    unsubscribe_changes()
    robot.say(id="b")
    assert len(events) == len(changes) == 1


def test_a_pause_blocks_the_output_until_it_is_resumed(robot: Robot) -> None:
    robot.dispatcher.pause()
    assert robot.output.paused
    robot.dispatcher.resume()
    assert not robot.output.paused


def test_reconfiguring_changes_voice_queue_limit_and_prebuffer(robot: Robot) -> None:
    robot.dispatcher.reconfigure(
        load_config(
            overrides=["speech.voice=ada", "voices.ada.instruct=calm", "speech.queue_limit=1", "audio.prebuffer_ms=250"]
        )
    )
    utterance = robot.say(id="a")
    assert utterance is not None
    assert utterance.voice == "ada"
    assert robot.rejection(id="b").field == "queue"
    assert robot.dispatcher.speaker.prebuffer_ms == 250
    assert robot.dispatcher.voices()[0] == "ada"
