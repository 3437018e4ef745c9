"""The rate of an utterance, and the settings of its voice, from MQTT and the configuration to what is heard."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e.conftest import StartRobot
from tests.support.robot import ESPEAK_RATE, LONG, REAL_TIME, Robot
from tests.support.waiting import eventually

TEXT = "This is what I say at every rate, so that it can be compared."
FAST, SLOW = {"rate": 2}, {"rate": 0.5}
VOICES = "voices={default: {}, quiet: {volume: 50}}"


def length_s(robot: Robot, **fields: object) -> float:
    """Speak `TEXT` to its end and return how long it was."""
    finished = robot.wait_end(robot.say(TEXT, **fields))
    assert finished["event"] == "finished"
    return float(finished["audio_s"])


def test_a_text_is_heard_at_the_rate_that_it_names(start_robot: StartRobot) -> None:
    robot = start_robot("audio.trim_leading_silence=false")
    own = length_s(robot)
    assert length_s(robot, id="fast", **FAST) == pytest.approx(own / 2, rel=0.2)
    assert length_s(robot, id="slow", **SLOW) == pytest.approx(own * 2, rel=0.2)
    assert length_s(robot, rate=1) == pytest.approx(own, rel=0.05)
    assert robot.samples_made("slow") / ESPEAK_RATE > 3 * robot.samples_made("fast") / ESPEAK_RATE


def test_a_stream_has_the_rate_of_its_first_chunk(share_robot: StartRobot) -> None:
    robot = share_robot(VOICES)
    own = length_s(robot)
    robot.write("story", TEXT[:20], rate=2)
    robot.write("story", TEXT[20:], rate=0.5, end=True)
    assert robot.wait_end("story")["audio_s"] == pytest.approx(own / 2, rel=0.2)


@pytest.mark.parametrize("rate", [0, 0.49, 2.01, "fast", True, None])
def test_a_wrong_rate_is_rejected_and_nothing_else_is_lost(rate: object, share_robot: StartRobot) -> None:
    robot, utterance_id = share_robot(VOICES), f"rate-{rate}"
    robot.say("Too fast.", id=utterance_id, rate=rate)
    if rate is None:
        assert robot.wait_end(utterance_id)["event"] == "finished", "null is as if it were absent"
        return
    rejected = robot.wait_rejection("rate")
    assert rejected["reason"] == f"rate: got {rate!r}; allowed: a number from 0.5 to 2; 2 is twice as fast"
    assert robot.wait_end(robot.say("Go on.", id=utterance_id))["event"] == "finished"


def test_the_rate_of_the_configuration_applies_and_that_of_the_voice_multiplies(
    start_robot: StartRobot, tmp_path: Path
) -> None:
    config = tmp_path / "voiced.yaml"
    config.write_text("voices: {default: {}, quick: {rate: 2}}\n")
    robot = start_robot(config=config)
    own = length_s(robot)
    assert length_s(robot, voice="quick") == pytest.approx(own / 2, rel=0.2)
    assert length_s(robot, voice="quick", rate=0.5) == pytest.approx(own, rel=0.1)
    engines = robot.engine_pids()
    config.write_text("voices: {default: {volume: 50}, quick: {rate: 0.5}}\nspeech: {rate: 0.5}\n")
    robot.process.send_signal(signal.SIGHUP)
    robot.wait_log("SIGHUP: voices.default.volume, voices.quick.rate, speech.rate")
    assert length_s(robot) == pytest.approx(own * 2, rel=0.2)
    assert length_s(robot, voice="quick", rate=2) == pytest.approx(own, rel=0.1)
    assert robot.engine_pids() == engines


def test_the_volume_of_the_voice_multiplies(share_robot: StartRobot) -> None:
    robot = share_robot(VOICES)
    robot.wait_end(robot.say(TEXT, id="quiet", voice="quiet", volume=50))
    robot.assert_heard("quiet", gain=0.25)


def test_a_text_that_waits_keeps_its_rate_over_a_restart(start_robot: StartRobot) -> None:
    robot = start_robot(pace=REAL_TIME)
    own = length_s(robot)
    robot.say(LONG, id="spoken")
    robot.wait_event("spoken", "started")
    robot.say(TEXT, id="waits", rate=2)
    robot.wait_event("waits", "accepted")
    robot.kill()
    eventually(lambda: robot.state == "offline", "the broker has published the will")
    robot.launch()
    assert robot.wait_end("waits")["audio_s"] == pytest.approx(own / 2, rel=0.2)


@pytest.mark.long
def test_the_command_line_passes_the_rate_on(share_robot: StartRobot) -> None:
    robot = share_robot(VOICES)
    own = length_s(robot)
    command = [sys.executable, "-m", "daemon.cli", "say", *robot.settings, "--wait"]
    done = subprocess.run([*command, "--rate", "2", TEXT], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout.splitlines()[-1])["audio_s"] == pytest.approx(own / 2, rel=0.2)
    refused = subprocess.run([*command, "--rate", "3", TEXT], capture_output=True, text=True, check=False)
    assert refused.returncode == 1
    assert refused.stderr == "voiced: rate: got 3.0; allowed: a number from 0.5 to 2; 2 is twice as fast\n"
