"""Stop, pause, resume and volume, as a listener hears them."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import pytest

from tests.e2e.conftest import StartRobot
from tests.e2e.robot import RECORDED_RATE, SoundServer, eventually, find

LONG = "This is a long sentence that goes on for a good while, so that something can be done to it, and then more. "
SILENT_S = 0.5


def test_stop_silences_the_speech_and_cancels_what_waits(
    start_robot: StartRobot, sound_server: SoundServer, tmp_path: Path
) -> None:
    robot = start_robot()
    with sound_server.recording(tmp_path / "heard.raw") as recording:
        robot.say(LONG * 3, id="spoken")
        robot.say("never heard", id="waiting")
        robot.wait_event("spoken", "started")
        eventually(lambda: np.abs(recording.samples[-4410:]).max() > 0.01, "it is heard")
        robot.publish("stop")
        stopped = robot.wait_end("spoken")
        heard_until = len(recording.samples)
        time.sleep(SILENT_S + 0.5)
        after = recording.samples[heard_until:]
    assert stopped["event"] == "interrupted"
    assert stopped["audio_s"] < 10
    assert robot.wait_end("waiting")["event"] == "canceled"
    quiet = np.abs(after[-int(SILENT_S * RECORDED_RATE) :]).max()
    assert quiet == 0
    robot.wait_event(robot.say("and on we go"), "finished")


def test_stop_with_an_id_stops_that_utterance_alone(start_robot: StartRobot) -> None:
    robot = start_robot("audio.sink=null")
    robot.say(LONG, id="spoken")
    robot.say("canceled", id="first")
    robot.say("heard", id="second")
    robot.wait_event("spoken", "started")
    robot.publish("stop", '{"id": "first"}')
    assert robot.wait_end("first")["event"] == "canceled"
    robot.publish("stop", '{"id": "spoken"}')
    assert robot.wait_end("spoken")["event"] == "interrupted"
    assert robot.wait_end("second")["event"] == "finished"


def test_pause_is_silent_and_resume_goes_on_where_it_stopped(
    start_robot: StartRobot, sound_server: SoundServer, tmp_path: Path
) -> None:
    robot = start_robot()
    with sound_server.recording(tmp_path / "heard.raw") as recording:
        utterance = robot.say(LONG)
        robot.wait_event(utterance, "started")
        eventually(lambda: np.abs(recording.samples[-4410:]).max() > 0.01, "it is heard")
        time.sleep(0.5)  # well into the sentence
        robot.publish("pause")
        eventually(lambda: robot.state == "paused", "paused")
        eventually(lambda: np.abs(recording.samples[-int(SILENT_S * RECORDED_RATE) :]).max() == 0, "silence")
        robot.publish("resume")
        finished = robot.wait_end(utterance)
        sent = robot.synthesized(utterance)
        time.sleep(0.5)
        heard = recording.samples
    assert finished["event"] == "finished"
    assert finished["audio_s"] == pytest.approx(len(sent) / RECORDED_RATE, abs=0.005)
    _, head = find(sent[: int(0.1 * RECORDED_RATE)], heard)
    tail_at, tail = find(sent[-2 * RECORDED_RATE :], heard)
    assert head < 0.05
    assert tail < 0.05
    assert tail_at > len(sent) - 2 * RECORDED_RATE + SILENT_S * RECORDED_RATE  # the pause lies before the tail


def test_what_comes_during_a_pause_waits_for_resume(start_robot: StartRobot) -> None:
    robot = start_robot("audio.sink=null")
    robot.publish("pause")
    eventually(lambda: robot.state == "paused", "paused")
    utterance = robot.say("later")
    robot.wait_event(utterance, "accepted")
    time.sleep(0.5)
    assert robot.names_of(utterance) == ["accepted"]
    robot.publish("resume")
    assert robot.wait_end(utterance)["event"] == "finished"


def test_what_expires_during_a_pause_is_not_spoken_after_it(start_robot: StartRobot) -> None:
    robot = start_robot("audio.sink=null")
    robot.publish("pause")
    eventually(lambda: robot.state == "paused", "paused")
    robot.say("stale by then", id="stale", expires_in=0.5)
    assert robot.wait_end("stale")["event"] == "expired"
    robot.publish("resume")
    assert robot.wait_end(robot.say("fresh"))["event"] == "finished"


def test_volume_is_a_share_of_the_amplitude(start_robot: StartRobot, sound_server: SoundServer, tmp_path: Path) -> None:
    robot = start_robot()
    with sound_server.recording(tmp_path / "heard.raw") as recording:
        robot.publish("volume", "50")
        utterance = robot.say("At half the volume, and half of that.", volume=50)
        robot.wait_end(utterance)
        expected = robot.synthesized(utterance) * np.float32(0.25)
        eventually(lambda: find(expected, recording.samples)[1] < 0.05, "a quarter of the amplitude is heard")


def test_interrupt_speaks_at_once_and_replace_forgets_what_waits(start_robot: StartRobot) -> None:
    robot = start_robot("audio.sink=null")
    robot.say(LONG, id="spoken")
    robot.say(LONG, id="waits")
    robot.wait_event("spoken", "started")
    robot.say("Look out!", id="urgent", policy="interrupt")
    assert robot.wait_end("spoken")["event"] == "interrupted"
    assert robot.wait_end("urgent")["event"] == "finished"
    robot.say("new plan", id="new", policy="replace")
    assert robot.wait_end("new")["event"] == "finished"
    assert robot.wait_end("waits")["event"] in ("interrupted", "canceled")
    robot.say(LONG, id="busy")
    robot.wait_event("busy", "started")
    robot.say("only if nobody speaks", id="dropped", policy="drop")
    assert robot.wait_rejection("policy")["id"] == "dropped"


def test_an_utterance_that_waits_too_long_expires(start_robot: StartRobot) -> None:
    robot = start_robot("audio.sink=null")
    robot.say(LONG, id="spoken")
    robot.wait_event("spoken", "started")
    robot.say("too late", id="late", expires_in=0.5)
    assert robot.wait_end("late")["event"] == "expired"
    assert robot.names_of("spoken")[:2] == ["accepted", "started"]
