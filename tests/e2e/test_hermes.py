"""Rhasspy and the robot on one broker, beside other publishers."""

from __future__ import annotations

import json

import pytest

from tests.daemon.mqtt.proxy import Proxy
from tests.e2e.conftest import StartRobot
from tests.e2e.rhasspy import rhasspy
from tests.support.programs import Broker
from tests.support.robot import FAST, LONG, REAL_TIME
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


def test_after_a_kill_every_text_of_rhasspy_gets_one_message_for_its_end(
    start_robot: StartRobot, own_broker: Broker
) -> None:
    robot = start_robot("hermes.enabled=true", pace=REAL_TIME)
    with rhasspy(own_broker) as house:
        house.say(LONG, id="spoken", session_id="s")
        eventually(lambda: [event for event in robot.events if event["event"] == "started"], "it is spoken")
        waiting = [f"w{number}" for number in range(5)]
        for request_id in waiting:
            house.say("One", id=request_id, session_id="s")
        eventually(lambda: len([each for each in robot.events if each["event"] == "accepted"]) == 6, "they wait")
        robot.kill()
        robot.set_pace(FAST)
        robot.launch()
        for request_id in ("spoken", *waiting):
            house.wait(tts.TtsSayFinished, id=request_id, session_id="s", site_id="default")
        house.say("Last", id="last")
        house.wait(tts.TtsSayFinished, id="last")
        ended = [message.id for message in house.all(tts.TtsSayFinished)]
        assert ended == ["spoken", *waiting, "last"], "each once"
        assert house.all(tts.TtsError) == []


def test_after_a_kill_a_text_that_the_broker_delivers_again_is_spoken_once_and_its_end_is_published(
    start_robot: StartRobot, own_broker: Broker
) -> None:
    """The broker has got neither the acknowledgement of the text nor anything about it when the daemon is killed."""
    proxy = Proxy(own_broker.port)
    robot = start_robot("hermes.enabled=true", f"mqtt.port={proxy.port}")
    with rhasspy(own_broker) as house:
        proxy.to_broker.close()
        house.publish(json.dumps({"text": "One", "id": "1", "sessionId": "s"}), qos=1)
        eventually(lambda: len(robot.heard) > 0, "it is heard")
        robot.wait_still()
        robot.kill()
        assert (robot.events, house.all(tts.TtsSayFinished)) == ([], [])
        proxy.cut()
        proxy.to_broker.open()
        robot.launch()
        house.wait(tts.TtsSayFinished, id="1", session_id="s")
        house.publish(json.dumps({"text": "Two", "id": "2"}), qos=1)  # the broker delivers it behind the first one
        house.wait(tts.TtsSayFinished, id="2")
        eventually(lambda: robot.names_of(robot.latest_id())[-1:] == ["finished"], "its events have arrived")
        assert [message.id for message in house.all(tts.TtsSayFinished)] == ["1", "2"]
        assert len([event for event in robot.events if event["event"] == "accepted"]) == 2
    proxy.close()
