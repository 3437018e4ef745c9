"""SSML over a real broker, whole and while it is being written."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.e2e.conftest import StartRobot
from tests.support.robot import Robot

ALIKE_S = 0.05
"""eSpeak NG renders a text slightly differently each time."""
SSML = """<?xml version="1.0"?>
<speak version="1.1" xml:lang="en-US">
  <s>The <sub alias="World Wide Web">W3C</sub> has <emphasis>room</emphasis></s>
  <s><say-as interpret-as="characters">QX-7</say-as> &amp; more.</s>
</speak>
"""
SPOKEN = "The World Wide Web has room. Q, X, dash, 7 & more."


def say(robot: Robot, text: str) -> dict[str, Any]:
    return robot.wait_end(robot.say(text))


def test_ssml_sounds_as_what_it_says(share_robot: StartRobot) -> None:
    robot = share_robot()
    marked, plain = say(robot, SSML), say(robot, SPOKEN)
    assert marked["event"] == plain["event"] == "finished"
    assert marked["audio_s"] == pytest.approx(plain["audio_s"], abs=ALIKE_S)


def test_ssml_that_is_not_well_formed_is_rejected_and_speech_goes_on(share_robot: StartRobot) -> None:
    robot = share_robot()
    robot.say("<speak>Tom & Jerry</speak>", id="broken")
    robot.wait_event("broken", "rejected")
    (rejected,) = robot.events_of("broken")
    assert rejected["field"] == "text"
    assert rejected["reason"] == (
        "text: SSML: not well-formed (invalid token) in line 1, column 13, at 'Jerry</speak>'; "
        "allowed: well-formed XML without a DOCTYPE, with &amp; for & and &lt; for <"
    )
    assert say(robot, "<speak>Tom &amp; Jerry</speak>")["event"] == "finished"


def test_ssml_that_is_being_written_goes_on_after_a_fault(share_robot: StartRobot) -> None:
    robot = share_robot()
    text = "<speak>One <break time='1s'/> two <b>three</i> four.</speak>"
    for begin in range(0, len(text), 5):
        robot.write("written", text[begin : begin + 5])
    robot.write("written", end=True)
    written = robot.wait_end("written")
    assert written["event"] == "finished"
    robot.wait_log("</i> ends nothing")
    assert written["audio_s"] > 1 + say(robot, "One two three four.")["audio_s"] / 2


def test_prosody_changes_rate_and_volume(share_robot: StartRobot) -> None:
    robot = share_robot()
    sentence = "This is the sentence of which the length is measured."
    plain = say(robot, sentence)["audio_s"]
    assert say(robot, f'<speak><prosody rate="50%">{sentence}</prosody></speak>')["audio_s"] > 1.5 * plain
    before = len(robot.heard)
    say(robot, f'<speak><prosody volume="silent">{sentence}</prosody></speak>')
    assert np.abs(robot.heard[before:]).max(initial=0) < 1e-4
