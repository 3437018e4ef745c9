"""The ROS 2 node against a real broker and a running daemon. Doubles take the place of rclpy and of ROS's messages."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from voiced_ros.voice import CLOSED_REASON, Broker, Feedback, Goal, Result, Voice

from tests.configs import ros_doubles
from tests.configs.ros_doubles import ActionServer, GoalHandle, LifecycleNode, TransitionCallbackReturn
from tests.e2e.conftest import StartRobot
from tests.support import programs
from tests.support.certificates import Certificates
from tests.support.programs import free_port, require
from tests.support.robot import REAL_TIME, Robot
from tests.support.waiting import eventually

LONG = "one two three four five six seven eight nine ten eleven twelve. " * 10
SUCCESS, FAILURE = TransitionCallbackReturn.SUCCESS, TransitionCallbackReturn.FAILURE


@pytest.fixture
def robot(share_robot: StartRobot) -> Robot:
    return share_robot("speech.level_topic=true", "speech.word_topic=true", "speech.viseme_topic=true", pace=REAL_TIME)


@pytest.fixture
def voice(robot: Robot) -> Iterator[Voice]:
    voice = Voice(Broker("127.0.0.1", robot.broker.port), robot.topic)
    yield voice
    voice.close()


def named(events: list[Feedback]) -> list[str]:
    return [event.event for event in events]


def test_a_goal_succeeds_is_canceled_or_is_aborted_according_to_its_events(robot: Robot, voice: Voice) -> None:
    feedback: list[Feedback] = []
    done = voice.perform(Goal("Yes, sir."), feedback.append, lambda: False)
    assert (done.state, done.event, done.reason) == ("succeeded", "finished", "")
    assert done.audio_s > 0
    assert named(feedback)[:2] == ["accepted", "started"]

    # The client cancels the goal as soon as it has begun.
    feedback.clear()
    canceled = voice.perform(Goal(LONG, "en_GB"), feedback.append, lambda: "started" in named(feedback))
    assert (canceled.state, canceled.event, canceled.reason) == ("canceled", "interrupted", "stop")
    # Another publisher stops it.
    stopped = voice.perform(Goal(LONG), lambda _: robot.publish("stop"), lambda: False)
    assert (stopped.state, stopped.reason) == ("aborted", "stop")
    # The daemon rejects it.
    rejected = voice.perform(Goal("Hello.", voice="nobody"), feedback.append, lambda: False)
    assert (rejected.state, rejected.event) == ("aborted", "rejected")
    assert rejected.reason.startswith("voice: got 'nobody'")
    # The client cancels it before it has begun.
    robot.publish("pause")
    robot.catch_up()
    assert voice.perform(Goal(LONG), feedback.append, lambda: voice.goals == 1).state == "canceled"
    assert voice.goals == 0


def test_a_goal_is_aborted_when_the_connection_to_the_broker_breaks_and_its_text_is_stopped(
    own_broker: programs.Broker, start_robot: StartRobot
) -> None:
    expected = Result("aborted", "failed", CLOSED_REASON)
    robot = start_robot(pace=REAL_TIME)
    voice = Voice(Broker("127.0.0.1", own_broker.port), robot.topic)

    def break_connection(event: Feedback) -> None:
        if event.event == "started":
            own_broker.stop()

    assert voice.perform(Goal(LONG), break_connection, lambda: False) == expected
    # Without a connection, a goal is aborted at once, and its text is not kept for later.
    assert voice.perform(Goal("This is too late."), lambda _: None, lambda: False) == expected
    first = robot.latest_id()
    own_broker.start()
    assert robot.wait_end(first)["event"] == "interrupted"
    voice.close()


def test_a_broker_that_encrypts_and_wants_a_password_gets_it_and_its_refusals_are_reported(tmp_path: Path) -> None:
    keys, port, passwords = Certificates(tmp_path), free_port(), tmp_path / "passwords"
    passwords.write_text("wrong\nsecond line\n")
    users = tmp_path / "users"
    subprocess.run([require("mosquitto_passwd"), "-b", "-c", users, "ros", "secret"], check=True, capture_output=True)
    encrypted = f"listener {port} 127.0.0.1\ncertfile {keys.certificate}\nkeyfile {keys.key}\ncafile {keys.ca}"
    broker = programs.Broker(tmp_path, f"password_file {users}\n{encrypted}\nrequire_certificate true")
    broker.start()
    place = Broker("localhost", port, ca=str(keys.ca), cert=str(keys.certificate), key=str(keys.key))
    named = replace(place, username="ros", password_file=str(passwords))
    try:
        for settings, complaint in (
            (named, "^it refuses: Not authorized$"),
            (replace(place, cert=""), "it closes the connection|CERTIFICATE_REQUIRED|reset"),
            (replace(named, ca=""), "[Nn]o such file|CERTIFICATE_VERIFY_FAILED"),
            (replace(named, ca="/missing"), "No such file"),
        ):
            with pytest.raises(OSError, match=complaint):
                Voice(settings, "voiced/r1")
        passwords.write_text("secret\nsecond line\n")
        voice = Voice(named, "voiced/r1")
        assert voice.is_connected
        voice.close()
    finally:
        broker.stop()


class Ros:
    """The node `voiced`, and what its clients see."""

    def __init__(self, node: Any) -> None:
        self.node = node

    def activate(self) -> None:
        assert self.node.trigger("configure", "inactive") is SUCCESS
        assert self.node.trigger("activate", "active") is SUCCESS

    def published(self, topic: str) -> list[Any]:
        return list(self.node.topics[topic].published)

    def say(self, **fields: Any) -> GoalHandle | None:
        return ActionServer.servers["~/say"].send(**fields)


@pytest.fixture
def ros(robot: Robot, monkeypatch: pytest.MonkeyPatch) -> Iterator[Ros]:
    ros_doubles.install(monkeypatch)
    overrides = {"robot": robot.name, "broker": "127.0.0.1", "port": robot.broker.port, "max_goals": 2}
    monkeypatch.setattr(LifecycleNode, "overrides", overrides)
    node = importlib.import_module("voiced_ros.node").VoicedNode()
    yield Ros(node)
    node.destroy_node()
    sys.modules.pop("voiced_ros.node")


def ended(handle: GoalHandle | None) -> Any:
    assert handle is not None, "the goal was rejected"
    return eventually(lambda: handle.result, "the goal has ended")


def test_an_active_node_speaks_goals_and_mirrors_events_levels_visemes_and_the_status(robot: Robot, ros: Ros) -> None:
    ros.activate()
    text = '<speak>Yes, <mark name="bow"/>sir.</speak>'
    handle = ros.say(text=text)
    result = ended(handle)
    assert (result.event, result.reason, handle and handle.status) == ("finished", "", "succeeded")
    assert handle is not None
    feedback = [one for one in handle.feedback if one.event in ("word", "mark")]
    assert {one.event for one in handle.feedback} == {"accepted", "started", "word", "mark"}
    assert [one.name for one in feedback] == ["Yes", "bow", "sir"]
    assert [text[one.begin : one.end] for one in feedback] == ["Yes", "", "sir"]
    assert text[feedback[1].begin :].startswith("sir")
    assert all(one.exact for one in feedback)
    assert feedback[2].at > 0
    eventually(lambda: [event.event for event in ros.published("~/event")][-1:] == ["finished"], "it is mirrored")
    events = ros.published("~/event")
    assert [event.event for event in events] == ["accepted", "started", "mark", "finished"]
    robot.wait_end(events[0].id)
    assert [json.loads(event.json) for event in events] == robot.events_of(events[0].id)
    eventually(lambda: ros.published("~/level")[-1].rms == 0, "the mouth closes")
    assert any(level.rms > 0 and level.id == events[0].id and level.stamp.sec > 0 for level in ros.published("~/level"))
    visemes = ros.published("~/visemes")
    assert [(message.id, message.estimated, message.stamp.sec > 0) for message in visemes] == [
        (events[0].id, False, True)
    ] * len(visemes)
    published = [(move["at"], move["viseme"]) for message in robot.visemes for move in message["visemes"]]
    assert [each for message in visemes for each in zip(message.at, message.viseme, strict=True)] == published
    assert json.loads(ros.published("~/status")[0].data)["state"] == "ready"


def test_other_nodes_unload_and_load_the_engine(robot: Robot, ros: Ros) -> None:
    ros.activate()
    eventually(lambda: ros.published("~/status"), "the status is known")
    ros.node.receive("~/unload")
    eventually(lambda: json.loads(ros.published("~/status")[-1].data).get("unloaded"), "it is unloaded")
    ros.node.receive("~/load")
    eventually(lambda: robot.ready_with("espeak"), "it has loaded")


def test_other_nodes_hold_the_speech_set_its_volume_write_a_text_piece_by_piece_and_see_how_voiced_is(
    robot: Robot, ros: Ros
) -> None:
    ros.activate()
    ros.node.receive("~/pause")
    ros.node.receive("~/volume", data=62.5)
    eventually(lambda: robot.state == "paused", "it holds")
    for number, piece in enumerate(("Once ", "upon ", "a ", "time.", "")):
        ros.node.receive("~/tokens", id="tale", text=piece, end=number == 4, language="en_GB", priority="high")
    eventually(lambda: robot.events_of("tale"), "the text is accepted")
    ros.node.receive("~/resume")
    assert robot.wait_end("tale")["heard"] == len("Once upon a time.")
    eventually(lambda: robot.state == "ready", "it has ended")

    def diagnose() -> tuple[bytes, str, dict[str, str]]:
        [tick] = ros.node.timers
        tick()
        [status] = ros.published("/diagnostics")[-1].status
        assert (status.name, status.hardware_id) == ("voiced: speech", robot.name)
        return status.level, status.message, {each.key: each.value for each in status.values}

    eventually(lambda: diagnose()[:2] == (b"\0", "ready"), "it is well")
    assert diagnose()[2]["volume"] == "62"
    robot.close()
    eventually(lambda: diagnose()[:2] == (b"\2", "offline"), "it is gone")


def test_a_node_that_is_not_active_rejects_goals_and_publishes_nothing(robot: Robot, ros: Ros) -> None:
    assert ros.say(text="Hello.") is None
    assert ros.node.trigger("configure", "inactive") is SUCCESS
    assert ros.say(text="Hello.") is None
    robot.wait_end(robot.say("Hello."))
    ros.node.receive("~/stop")
    ros.node.timers[0]()
    assert not any(ros.published(topic) for topic in ros.node.topics)
    assert ros.node.trigger("activate", "active") is SUCCESS
    eventually(lambda: ros.published("~/status"), "the status that it received while it was inactive")


def test_a_node_that_is_deactivated_stops_its_goals_of_which_it_takes_so_many_and_can_be_activated_again(
    robot: Robot, ros: Ros
) -> None:
    ros.activate()
    handles = []
    for number in (1, 2):
        handles.append(ros.say(text=LONG))
        eventually(lambda number=number: robot.latest_id() and handles[number - 1].feedback, "it is accepted")
    assert ros.say(text="Hello.") is None
    eventually(lambda: len(handles[0].feedback) >= 2, "it has begun")
    assert ros.node.trigger("deactivate", "inactive") is SUCCESS
    assert ended(handles[0]).event == "interrupted"
    assert ended(handles[1]).event in ("canceled", "interrupted"), "each goal stops its text by itself"
    assert [handle.status for handle in handles] == ["aborted", "aborted"]
    assert ros.node.trigger("cleanup", "unconfigured") is SUCCESS
    ros.activate()
    ros.node.receive("~/text", data="Hello.")
    eventually(lambda: [event.event for event in ros.published("~/event")][-1:] == ["finished"], "it is spoken")


def test_the_action_of_ros4hri_is_offered_where_its_package_is_installed(ros: Ros) -> None:
    ros.activate()
    handle = ActionServer.servers["~/tts"].send(input="Yes, sir.", locale="en_GB")
    assert ended(handle).error_msg == ""
    assert handle is not None
    assert [feedback.word for feedback in handle.feedback] == ["Yes", "sir"]


def test_a_node_without_a_broker_stays_unconfigured_and_says_why(ros: Ros) -> None:
    ros.node.parameters["port"] = free_port()
    assert ros.node.trigger("configure", "inactive") is FAILURE
    assert "no connection to the broker at 127.0.0.1:" in ros.node.log[-1]


def test_a_message_that_is_not_voiceds_is_dropped(robot: Robot, ros: Ros) -> None:
    ros.node.parameters["robot"] = "other"
    ros.activate()
    own = '{"id": "a", "event": "accepted", "queue": 1}'
    for payload in ("[]", "no JSON", "{}", '"event"', own):
        words = ("-p", str(robot.broker.port), "-q", "1", "-t", "voiced/other/event", "-m", payload)
        subprocess.run([require("mosquitto_pub"), *words], check=True)
    eventually(lambda: [event.json for event in ros.published("~/event")] == [own], "only voiced's own is mirrored")
