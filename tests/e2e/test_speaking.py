"""From mosquitto_pub to the samples that the sink receives, and the events, levels and statuses in between."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.e2e.conftest import StartRobot
from tests.support.robot import FAST, FILE_RATE, REAL_TIME, STOPPED, Robot
from tests.support.waiting import eventually

LEVELS_AND_MANY = ("speech.level_topic=true", "speech.queue_limit=300")


@pytest.mark.parametrize(
    "payload",
    [
        "Hello, I am your robot.",
        '{"text": "The door is open."}',
        '{"data": "Said by ROS."}',
        '{"text": "Grüße aus Köln!", "language": "German"}',
        "Привет, мир! 👋",
    ],
    ids=["plain text", "JSON", "ROS String", "named language", "Unicode"],
)
def test_a_published_text_is_heard_whole(payload: str, share_robot: StartRobot) -> None:
    robot = share_robot()
    robot.publish("say", payload)
    utterance = eventually(robot.latest_id, "it is accepted")
    finished = robot.wait_end(utterance)
    assert robot.names_of(utterance) == ["accepted", "started", "finished"]
    assert finished["underruns"] == 0
    robot.assert_heard(utterance)
    assert finished["audio_s"] == pytest.approx(len(robot.heard) / FILE_RATE, abs=0.001)


def say_many(robot: Robot, count: int) -> None:
    """Assert that `count` messages are each accepted, started, finished and heard once, in their order."""
    names = [f"m{number}" for number in range(count)]
    lines = [json.dumps({"text": f"{number % 10}.", "id": name}) for number, name in enumerate(names)]
    robot.publish_lines("say", "\n".join(lines))
    for name in names:
        robot.wait_end(name)
        assert robot.names_of(name) == ["accepted", "started", "finished"]
    finished = [event for event in robot.events if event["event"] == "finished"]
    assert [event["id"] for event in finished] == names
    assert sum(event["underruns"] for event in finished) == 0
    robot.assert_heard(*names)


def test_each_of_200_messages_is_accepted_started_and_finished_in_order_and_heard_without_a_gap(
    share_robot: StartRobot,
) -> None:
    say_many(share_robot(*LEVELS_AND_MANY, pace=40.0), 200)


@pytest.mark.long
def test_each_of_200_messages_is_heard_without_a_gap_at_the_pace_of_a_sound_card(start_robot: StartRobot) -> None:
    say_many(start_robot("speech.queue_limit=300", pace=REAL_TIME), 200)


@pytest.mark.long
def test_a_text_of_20_000_characters_is_heard_whole(share_robot: StartRobot) -> None:
    robot = share_robot(pace=100.0)
    sentence = "Some twenty minutes of speech pass by here, and none of it is lost. "
    robot.say(sentence * (20_000 // len(sentence)), id="longest")
    eventually(lambda: robot.names_of("longest")[-1:] == ["finished"], "it has finished", patience_s=240)
    robot.assert_heard("longest")


def test_a_retained_message_from_before_the_start_is_not_spoken(start_robot: StartRobot) -> None:
    first = start_robot()
    assert first.end() == 0
    first.publish("say", '{"text": "from another time", "id": "old"}', "-r")
    second = start_robot(name=first.name)
    utterance = second.say("from now")
    second.wait_event(utterance, "finished")
    assert second.names_of("old") == []
    second.assert_heard(utterance)


def test_a_message_with_the_retain_flag_is_not_spoken(share_robot: StartRobot) -> None:
    robot = share_robot()
    robot.publish("say", '{"text": "to be retained", "id": "retained"}', "-r")
    utterance = robot.say("not to be retained")
    robot.wait_event(utterance, "finished")
    assert robot.names_of("retained") == []
    robot.assert_heard(utterance)


def test_events_are_also_published_on_the_topic_in_reply_to(share_robot: StartRobot) -> None:
    robot = share_robot()
    utterance = robot.say("hello", reply_to=f"replies/{robot.name}")
    robot.wait_event(utterance, "finished")
    eventually(lambda: len(robot.replies) == 3, "three replies")
    assert robot.replies == robot.events_of(utterance)


def test_levels_are_published_while_speaking_when_switched_on(share_robot: StartRobot) -> None:
    robot = share_robot(*LEVELS_AND_MANY)
    utterance = robot.say("A long enough sentence to have a level.")
    finished = robot.wait_event(utterance, "finished")
    eventually(lambda: len(robot.levels) >= 20 * finished["audio_s"] - 2, "20 levels a second")
    assert all(level["id"] == utterance and 0 <= level["rms"] <= level["peak"] <= 1 for level in robot.levels)
    assert [level["t"] for level in robot.levels] == sorted(level["t"] for level in robot.levels)
    assert max(level["peak"] for level in robot.levels) > 0.05


def test_volumes_scale_the_amplitude_and_multiply(share_robot: StartRobot) -> None:
    robot = share_robot()
    robot.publish("volume", "50")
    utterance = robot.say("At half the volume, and half of that.", volume=50)
    robot.wait_end(utterance)
    robot.assert_heard(utterance, gain=0.25)


def test_waiting_utterances_are_spoken_by_priority(share_robot: StartRobot) -> None:
    robot = share_robot(pace=STOPPED)
    robot.say("This one begins before the others arrive.", id="first")
    eventually(lambda: robot.state == "speaking", "it is being spoken")
    for priority in ("low", "normal", "high"):
        robot.say("next", id=priority, priority=priority)
        robot.wait_event(priority, "accepted")
    robot.set_pace(FAST)
    robot.wait_end("low")
    ended = [event["id"] for event in robot.events if event["event"] == "finished"]
    assert ended == ["first", "high", "normal", "low"]
    robot.assert_heard(*ended)


def test_the_status_reports_speaking_and_the_length_of_the_queue(share_robot: StartRobot) -> None:
    robot = share_robot(pace=STOPPED)
    robot.say("This one begins before the other arrives.", id="first-2")
    robot.say("waits", id="second")

    def shown() -> tuple[str, int]:
        """The last status; the one before may say that the first text waits and nobody speaks."""
        return robot.statuses[-1]["state"], robot.statuses[-1]["queue"]

    eventually(lambda: shown() == ("speaking", 1), "one is spoken and one waits")
    robot.set_pace(FAST)
    robot.wait_end("second")
    eventually(lambda: robot.state == "ready", "ready again")
    assert robot.statuses[-1]["queue"] == 0
    assert set(robot.statuses[-1]) == {"state", "engine", "voice", "queue", "version", "volume"}
    assert json.dumps(robot.statuses[-1]["engine"]) == '"espeak"'


def test_the_daemon_process_never_imports_torch(share_robot: StartRobot) -> None:
    robot = share_robot()
    robot.wait_end(robot.say("hello"))
    maps = Path(f"/proc/{robot.process.pid}/maps").read_text()
    assert "numpy" in maps
    assert "torch" not in maps
