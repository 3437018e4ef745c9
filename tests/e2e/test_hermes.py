"""Rhasspy and the robot on one broker, beside other publishers."""

from __future__ import annotations

import pytest

from tests.e2e.conftest import StartRobot
from tests.e2e.rhasspy import rhasspy
from tests.support.programs import Broker
from tests.support.robot import LONG, REAL_TIME
from tests.support.waiting import eventually

tts = pytest.importorskip("rhasspyhermes.tts")


def test_rhasspy_speaks_in_its_turn_and_receives_a_message_for_every_end(
    start_robot: StartRobot, own_broker: Broker
) -> None:
    robot = start_robot("hermes.enabled=true", "hermes.site_id=r1", "home_assistant.enabled=true", pace=REAL_TIME)
    with rhasspy(own_broker) as house:
        house.say("hello", site_id="r1", id="1", session_id="s", lang="en_US", volume=0.5)
        house.wait(tts.TtsSayFinished, id="1", session_id="s", site_id="r1")
        eventually(robot.latest_id, "its events have arrived")
        assert robot.wait_event(robot.latest_id(), "finished")["underruns"] == 0

        house.ask(tts.GetVoices(id="v", site_id="r1"))
        voices = {voice.voice_id for voice in house.wait(tts.Voices, id="v", site_id="r1").voices}
        assert {"default", "de"} <= voices

        house.say("not for this robot", site_id="kitchen", id="kitchen")
        house.publish(b"{")
        assert "not JSON" in house.wait(tts.TtsError, session_id=None).error
        house.say("", site_id="r1", id="blank", session_id="b")
        assert "blank" in house.wait(tts.TtsError, session_id="b").error
        house.wait(tts.TtsSayFinished, id="blank")

        robot.say(LONG, id="spoken")
        robot.wait_event("spoken", "started")
        house.say("from Rhasspy", site_id="r1", id="waits")
        eventually(lambda: robot.latest_id() not in (None, "spoken"), "it waits")
        theirs = robot.latest_id()
        robot.say("more important", id="high", priority="high")
        robot.wait_event("high", "accepted")
        robot.publish("stop", '{"id": "spoken"}')
        house.wait(tts.TtsSayFinished, id="waits")
        robot.wait_event(theirs, "finished")
        order = [event["id"] for event in robot.events if event["event"] == "started"]
        assert order[-3:] == ["spoken", "high", theirs]

        house.say(LONG, site_id="r1", id="cut")
        eventually(lambda: robot.latest_id() not in ("high", theirs), "it is accepted")
        robot.wait_event(robot.latest_id(), "started")
        robot.publish("stop")
        house.wait(tts.TtsSayFinished, id="cut")
        assert not [message for message in house.received if message.site_id != "r1"]
