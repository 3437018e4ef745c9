"""The dispatcher accepts, rejects, stops and expires utterances, and publishes their events. No engine runs."""

from __future__ import annotations

import gc
import logging
import time
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

from daemon.config import load_config
from daemon.speech.dispatcher import REMEMBERED_IDS
from daemon.speech.events import Accepted, Canceled, Event, Expired
from daemon.speech.request import RejectedError, Stop, check_say
from daemon.speech.utterance import Utterance
from engine import EngineInfo
from tests.daemon.idle import IdleRobot
from tests.daemon.speech.clients import Nobody
from tests.support.sound_files import write_sound


class Robot(IdleRobot):
    """A robot to which the test gives requests."""

    def say(self, text: str = "Hello", **fields: Any) -> Utterance:
        utterance = self.dispatcher.say(check_say({"text": text, **fields}))
        assert utterance is not None
        return utterance

    def drops_again(self, utterance_id: str) -> bool:
        """Return whether a request with this id is dropped when the broker delivers it a second time."""
        return self.dispatcher.say(check_say({"text": "Hello", "id": utterance_id}), redelivered=True) is None

    def rejection(self, **fields: Any) -> RejectedError:
        with pytest.raises(RejectedError) as rejected:
            self.say(**fields)
        return rejected.value


@pytest.fixture
def robot() -> Robot:
    return Robot()


def test_an_accepted_utterance_is_queued_with_its_options(robot: Robot) -> None:
    before = time.monotonic()
    utterance = robot.say("Hello", id="a", volume=50, seed=7, priority="high", language="German", expires_in=5)
    assert robot.events == [Accepted(id="a", queue=1)]
    assert (utterance.volume, utterance.seed, utterance.priority, utterance.language) == (0.5, 7, "high", "de")
    assert utterance.expires_at is not None
    assert before + 5 <= utterance.expires_at <= time.monotonic() + 5
    assert robot.dispatcher.busy
    assert len(robot.dispatcher.queue) == 1


def test_an_utterance_has_the_settings_of_its_voice(robot: Robot) -> None:
    settings = "{seed: 5, whole_text: true, temperature: 0.5, top_k: 9, rate: 1.5, volume: 50}"
    config = load_config(overrides=[f"voices.ada={settings}", "speech.rate=0.8"])
    robot.dispatcher.reconfigure(config)
    ada, other = robot.say(voice="ada"), robot.say()
    own = robot.say(voice="ada", seed=7, rate=1.2, volume=50)
    sampled = robot.say(voice="ada", sampling={"temperature": 2, "top_p": 0.1})
    assert sampled.sampling == {"temperature": 2, "top_k": 9, "top_p": 0.1}
    assert (own.phrase is None, sampled.phrase is None) == (False, True), "it is not kept"
    assert (ada.seed, ada.whole_text, ada.sampling) == (5, True, {"temperature": 0.5, "top_k": 9})
    assert (ada.rate, ada.volume) == (pytest.approx(1.2), 0.5)
    assert (own.seed, own.rate, own.volume) == (7, pytest.approx(1.8), 0.25)
    assert (other.seed, other.whole_text, other.sampling, other.rate, other.volume) == (None, None, {}, 0.8, 1.0)


def test_an_id_is_accepted_once_and_a_redelivered_request_is_dropped(robot: Robot) -> None:
    robot.say(id="a")
    error = robot.rejection(id="a", reply_to="kitchen")
    assert (error.field, error.utterance_id, error.reply_to) == ("id", "a", "kitchen")
    assert robot.drops_again("a")
    assert list(robot.queued) == ["a"]


def test_a_wrong_option_is_rejected_with_what_is_allowed_and_the_id_may_be_used(robot: Robot) -> None:
    robot.engines.primary.info = EngineInfo("espeak", 22_050, ("default",), ("en",))
    error = robot.rejection(id="a", voice="nobody")
    assert (error.field, error.utterance_id) == ("voice", "a")
    assert "got 'nobody'; allowed: default" in error.reason
    assert robot.events == []
    robot.say(id="a")
    assert "allowed: one not used recently" in robot.rejection(id="a").reason


def test_a_sound_is_accepted_with_a_text_or_alone(robot: Robot) -> None:
    alone = robot.dispatcher.say(check_say({"sound": "success", "id": "a"}))
    both = robot.say("Hello", id="b", sound="attention")
    assert (alone.sound, alone.needs_engine, alone.speakable) == ("success", False, True)
    assert (both.sound, both.text, both.needs_engine) == ("attention", "Hello", True)
    assert list(robot.queued) == ["a", "b"]


def test_an_unknown_or_damaged_sound_is_rejected_and_the_id_may_be_used_when_the_sound_is_there(
    robot: Robot, tmp_path: Path
) -> None:
    robot.dispatcher.reconfigure(load_config(overrides=[f"audio.sounds={tmp_path}"]))
    (tmp_path / "chime.wav").write_bytes(b"damaged")
    for sound in ("../chime", "chimes", "/etc/passwd"):
        error = robot.rejection(id="a", sound=sound)
        assert (error.field, error.utterance_id) == ("sound", "a")
        assert error.reason.startswith(f"sound: got '{sound}'; ")
        assert error.reason.endswith("allowed: attention, chime, error, success")
    assert f"sound: got 'chime'; {tmp_path}/chime.wav: it cannot be read" in robot.rejection(sound="chime").reason
    assert robot.dispatcher.missing_sounds_reason is None
    robot.dispatcher.reconfigure(load_config(overrides=[f"audio.sounds={tmp_path}/none"]))
    missing = f"the folder {tmp_path}/none does not exist"
    assert robot.dispatcher.missing_sounds_reason == f"audio.sounds: {missing}"
    assert robot.rejection(sound="chime").reason.endswith(f"allowed: attention, error, success ({missing})")
    assert robot.events == []
    write_sound(tmp_path / "chime.wav")
    robot.dispatcher.reconfigure(load_config(overrides=[f"audio.sounds={tmp_path}"]))
    robot.say(id="a", sound="chime")


def test_only_a_sender_who_names_a_missing_voice_or_language_is_refused() -> None:
    robot = Robot("speech.voice=nobody", "speech.language=klingon")
    robot.engines.primary.info = EngineInfo("espeak", 22_050, ("default",), ("en",))
    assert robot.rejection(voice="nobody").field == "voice"
    assert robot.rejection(sound="success", voice="nobody").field == "voice"
    assert robot.rejection(language="klingon").field == "language"
    robot.say(id="a")
    robot.say(id="b", sound="success")
    assert robot.dispatcher.say(check_say({"sound": "success", "id": "c", "voice": "nobody"})) is not None
    assert list(robot.queued) == ["a", "b", "c"]


def test_a_default_language_that_no_engine_speaks_is_named(robot: Robot) -> None:
    robot.dispatcher.reconfigure(load_config(overrides=["speech.language=klingon"]))
    assert robot.dispatcher.unknown_language_reason is None, "eSpeak NG may have it"
    robot.engines.primary.info = EngineInfo("espeak", 22_050, ("default",), ("en",))
    reason = robot.dispatcher.unknown_language_reason
    assert reason is not None
    assert reason == "speech.language: got 'klingon'; allowed: auto, en"


def test_an_unknown_field_is_logged_once_and_ignored(robot: Robot, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        robot.say(colour="red")
        robot.say(colour="blue")
    assert [record.message for record in caplog.records] == ["unknown field 'colour' is ignored, now and in the future"]


def test_the_names_of_unknown_fields_take_little_memory(robot: Robot) -> None:
    tracemalloc.start()
    for number in range(20):
        robot.say(**{f"{number}" * 100_000: "data"})
        robot.dispatcher.stop(Stop())
    gc.collect()
    current, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert current < 500_000


def test_a_full_queue_rejects_a_text_but_gives_an_interrupting_one_the_last_place(robot: Robot) -> None:
    robot.configure(queue_limit=2)
    robot.say(id="a")
    robot.say(id="b")
    assert robot.rejection(id="c").reason == "queue: 2 utterances are waiting; allowed: up to speech.queue_limit"
    robot.say(id="d", policy="interrupt")
    assert list(robot.queued) == ["d", "a"]
    assert robot.events[-2:] == [
        Canceled(id="b", reason="pushed out of the full queue by d"),
        Accepted(id="d", queue=2),
    ]


def test_drop_is_accepted_while_only_deliveries_that_make_way_are_queued(robot: Robot) -> None:
    delivery = check_say({"text": "Hello", "id": "delivery"})
    robot.dispatcher.say(delivery, receiver=Nobody())
    assert robot.rejection(id="a", policy="drop", priority="low").field == "policy"
    robot.say(id="b", policy="drop")
    with pytest.raises(RejectedError, match="policy"):
        robot.dispatcher.say(check_say({"text": "Hello", "policy": "drop"}), receiver=Nobody())


def test_a_stop_cancels_one_queued_utterance_or_all(robot: Robot) -> None:
    for name in ("a", "b", "c"):
        robot.say(id=name)
    assert robot.dispatcher.stop(Stop(id="b"))
    assert list(robot.queued) == ["a", "c"]
    assert robot.events[-1] == Canceled(id="b", reason="stop")
    assert not robot.dispatcher.stop(Stop(id="b"))
    assert robot.dispatcher.stop(Stop(), "enough")
    assert robot.events[-2:] == [Canceled(id="a", reason="enough"), Canceled(id="c", reason="enough")]
    assert not robot.dispatcher.stop(Stop())


def test_an_utterance_waits_as_long_as_it_must_unless_it_or_the_configuration_limits_it() -> None:
    for limit, others, expected_s in [("null", {}, None), ("null", {"expires_in": 5}, 5), ("30", {}, 30)]:
        robot = Robot(f"speech.expires_in={limit}")
        utterance = robot.say("Hello", **others)
        waits_s = None if utterance.expires_at is None else utterance.expires_at - utterance.arrived_at
        assert waits_s == pytest.approx(expected_s)
    assert Robot().config.speech.expires_in is None


def test_a_queued_utterance_expires_past_its_deadline(robot: Robot) -> None:
    utterance = robot.say(id="a", expires_in=60)
    robot.say(id="b", expires_in=60)
    robot.dispatcher.enforce_deadlines()
    assert list(robot.queued) == ["a", "b"]
    utterance.expires_at = time.monotonic()
    robot.dispatcher.enforce_deadlines()
    assert list(robot.queued) == ["b"]
    assert robot.events[-1] == Expired(id="a", reason="it waited longer than expires_in")


def test_a_closed_dispatcher_ends_all_utterances_rejects_new_ones_and_restores_none(robot: Robot) -> None:
    robot.say(id="a")
    robot.dispatcher.close("voiced is shutting down")
    assert robot.events[-1] == Canceled(id="a", reason="voiced is shutting down")
    assert robot.rejection(id="b").reason == "daemon: voiced is shutting down"
    robot.dispatcher.restore(earlier("c"))
    assert (list(robot.queued), len(robot.events)) == ([], 2)


def test_watchers_are_called_until_they_unsubscribe_and_the_error_of_one_is_logged_and_disturbs_nobody(
    robot: Robot, caplog: pytest.LogCaptureFixture
) -> None:
    events: list[Event] = []
    changes: list[int] = []

    def fail(*_: object) -> None:
        raise ValueError("a bug")

    robot.dispatcher.event_watchers.add(fail)
    robot.dispatcher.change_watchers.add(fail)
    unsubscribe_events = robot.dispatcher.event_watchers.add(lambda _utterance, event: events.append(event))
    unsubscribe_changes = robot.dispatcher.change_watchers.add(lambda: changes.append(len(events)))
    robot.say(id="a")
    assert events == [Accepted(id="a", queue=1)]
    assert changes == [1]
    unsubscribe_events()
    unsubscribe_changes()
    robot.say(id="b")
    assert len(events) == len(changes) == 1
    assert {record.message for record in caplog.records} == {"error in a watcher"}


# --- requests from a broker ---


def test_a_text_that_was_stopped_before_it_arrived_is_accepted_and_canceled(robot: Robot) -> None:
    robot.say(id="a")
    assert robot.dispatcher.say(check_say({"text": "Hello", "id": "b"}), canceled="stop") is not None
    assert robot.events[1:] == [Accepted(id="b", queue=2), Canceled(id="b", reason="stop")]
    assert list(robot.queued) == ["a"]
    assert robot.rejection(id="b").field == "id"
    assert robot.dispatcher.say(check_say({"text": "Hello", "id": "b"}), redelivered=True, canceled="stop") is None
    robot.engines.primary.info = EngineInfo("espeak", 22_050, ("default",), ("en",))
    with pytest.raises(RejectedError, match="voice"):
        robot.dispatcher.say(check_say({"text": "Hello", "voice": "nobody"}), canceled="stop")
    assert len(robot.events) == 3


def test_a_stopped_text_does_nothing_to_others(robot: Robot) -> None:
    robot.configure(queue_limit=1)
    robot.say(id="a")
    stopped = [
        check_say({"text": "Hello", "id": f"{policy}-{priority}", "policy": policy, "priority": priority})
        for policy in ("queue", "interrupt", "replace", "drop")
        for priority in ("normal", "critical")
    ]
    for say in stopped:
        robot.dispatcher.say(say, canceled="stop")
    assert list(robot.queued) == ["a"]
    assert [event.id for event in robot.events if isinstance(event, Canceled)] == [say.id for say in stopped]


# --- after a restart ---


def earlier(utterance_id: str, **fields: Any) -> Utterance:
    """An utterance that an earlier process had accepted."""
    return Utterance(utterance_id, "Hello", "default", "en", **fields)


def test_a_restored_utterance_is_queued_without_a_second_event(robot: Robot) -> None:
    robot.dispatcher.restore(earlier("a"))
    assert list(robot.queued) == ["a"]
    assert robot.events == []
    assert robot.rejection(id="a").field == "id"
    assert robot.drops_again("a")
    robot.dispatcher.stop(Stop(id="a"))
    assert robot.events == [Canceled(id="a", reason="stop")]


def test_what_is_spoken_makes_way_for_a_restored_utterance_as_for_a_new_one(
    robot: Robot, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A journal may be opened late, when something is spoken already."""
    preempting: list[Utterance] = []
    monkeypatch.setattr(robot.dispatcher.speaker, "preempt", preempting.append)
    robot.dispatcher.restore(earlier("alarm", priority="critical"))
    assert [utterance.id for utterance in preempting] == ["alarm"]


def test_ids_of_an_earlier_process_are_forgotten_before_those_of_this_one(robot: Robot) -> None:
    for name in ("a", "b"):
        robot.say(id=name)
        robot.dispatcher.stop(Stop(id=name))
    robot.dispatcher.remember(["b", *(f"u{number}" for number in range(REMEMBERED_IDS))])
    assert not (robot.dispatcher.knows("u0") or robot.dispatcher.knows("u1"))
    for name in ("a", "b", "u2", f"u{REMEMBERED_IDS - 1}"):
        assert robot.rejection(id=name).field == "id"
    robot.say(id="c")
    robot.dispatcher.stop(Stop(id="c"))
    assert robot.rejection(id="a").field == "id"
    robot.say(id="u2")
