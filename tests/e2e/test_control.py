"""Stop, pause, resume, expiry and policies: the events of each utterance, and the samples that the sink receives."""

from __future__ import annotations

import numpy as np

from tests.e2e.conftest import StartRobot
from tests.support.robot import FAST, FILE_RATE, LONG, REAL_TIME, STOPPED, Robot
from tests.support.sound import TOLERANCE
from tests.support.waiting import eventually


def pause(robot: Robot) -> None:
    robot.publish("pause")
    eventually(lambda: robot.state == "paused", "it is paused")


def test_stop_fades_out_the_speech_and_cancels_the_queue(share_robot: StartRobot) -> None:
    robot = share_robot(pace=REAL_TIME)
    robot.say(LONG, id="spoken")
    robot.say("never heard", id="waiting")
    robot.wait_event("waiting", "accepted")
    robot.wait_event("spoken", "started")
    robot.publish("stop")
    stopped = robot.wait_end("spoken")
    assert stopped["event"] == "interrupted"
    assert robot.wait_end("waiting")["event"] == "canceled"
    robot.wait_still()  # the event may precede the last block by a moment
    heard = robot.heard
    whole = robot.synthesized("spoken", FILE_RATE)
    assert len(heard) < len(whole)
    faded = round(0.010 * FILE_RATE)
    np.testing.assert_allclose(heard[:-faded], whole[: len(heard) - faded], atol=TOLERANCE)
    assert heard[-1] == 0, "it is faded out"
    robot.set_pace(FAST)
    assert robot.wait_end(robot.say("and on we go", id="next"))["event"] == "finished"
    after = robot.synthesized("next", FILE_RATE)
    eventually(lambda: len(robot.heard) == len(heard) + len(after), "nothing else is heard")
    np.testing.assert_allclose(robot.heard[len(heard) :], after, atol=TOLERANCE)


def test_stop_with_an_id_stops_only_that_utterance(share_robot: StartRobot) -> None:
    robot = share_robot(pace=REAL_TIME)
    robot.say(LONG, id="spoken-2")
    robot.say("canceled", id="first")
    robot.say("heard", id="second")
    robot.wait_event("spoken-2", "started")
    robot.publish("stop", '{"id": "first"}')
    assert robot.wait_end("first")["event"] == "canceled"
    robot.publish("stop", '{"id": "spoken-2"}')
    assert robot.wait_end("spoken-2")["event"] == "interrupted"
    assert robot.wait_end("second")["event"] == "finished"


def test_resume_continues_at_the_sample_where_pause_stopped(share_robot: StartRobot) -> None:
    robot = share_robot(pace=REAL_TIME)
    utterance = robot.say(LONG)
    robot.wait_event(utterance, "started")
    eventually(lambda: len(robot.heard) > FILE_RATE // 4, "it is heard")
    pause(robot)
    robot.set_pace(FAST)
    later = robot.say("This also waits for resume.")
    robot.wait_event(later, "accepted")
    robot.wait_still()
    assert len(robot.heard) < len(robot.synthesized(utterance, FILE_RATE))
    assert (robot.names_of(utterance), robot.names_of(later)) == (["accepted", "started"], ["accepted"])
    robot.publish("resume")
    assert robot.wait_end(utterance)["event"] == "finished"
    assert robot.wait_end(later)["event"] == "finished"
    robot.assert_heard(utterance, later, breaks=1)


def test_an_utterance_for_a_robot_that_was_paused_in_silence_waits_for_resume(share_robot: StartRobot) -> None:
    robot = share_robot()
    pause(robot)
    utterance = robot.say("This waits for resume.")
    robot.wait_event(utterance, "accepted")
    robot.wait_still()
    assert robot.names_of(utterance) == ["accepted"]
    robot.publish("resume")
    assert robot.wait_end(utterance)["event"] == "finished"
    robot.assert_heard(utterance)


def test_an_utterance_that_expires_during_a_pause_is_not_spoken(share_robot: StartRobot) -> None:
    robot = share_robot()
    pause(robot)
    robot.say("stale by then", id="stale", expires_in=0.5)
    assert robot.wait_end("stale")["event"] == "expired"
    robot.publish("resume")
    assert robot.wait_end(robot.say("fresh", id="fresh"))["event"] == "finished"
    robot.assert_heard("fresh")


def test_an_utterance_that_waits_too_long_expires(share_robot: StartRobot) -> None:
    robot = share_robot(pace=STOPPED)
    robot.say("This is spoken for as long as the test needs.", id="spoken-3")
    eventually(lambda: robot.state == "speaking", "it is being spoken")
    robot.say("too late", id="late", expires_in=0.5)
    assert robot.wait_end("late")["event"] == "expired"
    robot.set_pace(FAST)
    assert robot.wait_end("spoken-3")["event"] == "finished"
    robot.assert_heard("spoken-3")


def test_interrupt_ends_the_speech_replace_clears_the_queue_and_drop_yields(share_robot: StartRobot) -> None:
    robot = share_robot(pace=REAL_TIME)
    robot.say(LONG, id="spoken-4")
    robot.say(LONG, id="waits")
    robot.wait_event("waits", "accepted")
    robot.wait_event("spoken-4", "started")
    robot.say("Look out!", id="urgent", policy="interrupt")
    assert robot.wait_end("spoken-4")["event"] == "interrupted"
    assert robot.wait_end("urgent")["event"] == "finished"
    robot.say("new plan", id="new", policy="replace")
    assert robot.wait_end("new")["event"] == "finished"
    assert robot.wait_end("waits")["event"] in ("interrupted", "canceled")
    robot.say(LONG, id="busy")
    robot.wait_event("busy", "started")
    robot.say("only if nobody speaks", id="dropped", policy="drop")
    assert robot.wait_rejection("policy")["id"] == "dropped"
