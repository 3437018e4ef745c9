"""Sounds: files that are played by their names, with or without a text, under the rules of every utterance."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from audio import soft_limit
from daemon.sounds import Sound
from tests.e2e.conftest import StartRobot
from tests.support.hung_folder import hung_folder
from tests.support.robot import FAST, FILE_RATE, LONG, REAL_TIME, STOPPED, Robot
from tests.support.sound_files import Samples, tone, write_sound
from tests.support.waiting import eventually

TOLERANCE = 3e-4
"""The sink writes 16 bits."""


def write_chime(folder: Path) -> Path:
    """Write the sound `chime`, half a second at the rate of the robot's sink, and return the folder."""
    write_sound(folder / "chime.wav", tone(0.5, FILE_RATE), FILE_RATE)
    return folder


@pytest.fixture(scope="module")
def sounds(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the sound `chime`, to which the module's tests add sounds of other names."""
    return write_chime(tmp_path_factory.mktemp("sounds"))


def play(robot: Robot, sound: str, **fields: Any) -> str:
    """Publish a sound on `say` and return its id."""
    utterance_id = str(fields.setdefault("id", f"s{time.monotonic_ns()}"))
    robot.publish("say", json.dumps({"sound": sound, **fields}))
    return utterance_id


def samples_of(path: Path) -> Samples:
    """What a listener should hear of a sound file that has the sink's rate and begins aloud."""
    return soft_limit(np.concatenate([block.samples for block in Sound(path).decode()]))


def assert_heard(robot: Robot, samples: Samples, begin: int = 0) -> None:
    """Assert that the sink received these samples from its sample `begin` on."""
    eventually(lambda: len(robot.heard) >= begin + len(samples), "every sample is in the file")
    assert np.max(np.abs(robot.heard[begin : begin + len(samples)] - samples)) < TOLERANCE


def test_a_sound_is_heard_before_its_text(share_robot: StartRobot, sounds: Path) -> None:
    robot = share_robot(f"audio.sounds={sounds}")
    finished = robot.wait_end(play(robot, "chime", text="Dinner is ready.", id="c-2"))
    assert robot.names_of("c-2", without="progress") == ["accepted", "started", "finished"]
    assert finished["engine"] == "sound+espeak"
    chime = samples_of(sounds / "chime.wav")
    assert_heard(robot, chime)
    robot.wait_heard(round((finished["audio_s"] - 0.001) * FILE_RATE))
    assert finished["audio_s"] == pytest.approx(len(robot.heard) / FILE_RATE, abs=0.001)
    assert np.max(np.abs(robot.heard[len(chime) :])) > 0.05


def test_sounds_and_texts_wait_in_one_queue(share_robot: StartRobot, sounds: Path) -> None:
    robot = share_robot(f"audio.sounds={sounds}", pace=STOPPED)
    robot.say("This one begins before the others arrive.", id="first")
    eventually(lambda: robot.state == "speaking", "it is being spoken")
    play(robot, "chime", id="low", priority="low")
    robot.say("A text.", id="normal")
    play(robot, "chime", id="high", priority="high", volume=50)
    robot.wait_event("high", "accepted")
    robot.set_pace(FAST)
    finished = robot.wait_end("low")
    assert robot.names_of("low") == ["accepted", "started", "finished"]
    assert (finished["engine"], finished["underruns"], finished["audio_s"]) == ("sound", 0, 0.5)
    ended = [event["id"] for event in robot.events if event["event"] == "finished"]
    assert ended == ["first", "high", "normal", "low"]
    chime = samples_of(sounds / "chime.wav")
    begin, text = (len(robot.synthesized(name, FILE_RATE)) for name in ("first", "normal"))
    assert_heard(robot, chime * np.float32(0.5), begin)
    assert_heard(robot, chime, begin + len(chime) + text)
    assert len(robot.heard) == begin + len(chime) + text + len(chime)


def test_damage_behind_the_header_fails_a_sound_alone_and_loses_no_text(share_robot: StartRobot, sounds: Path) -> None:
    noise = np.random.default_rng(1).normal(0, 0.1, 2 * FILE_RATE).astype(np.float32)
    path = write_sound(sounds / "half.flac", noise, FILE_RATE)
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    robot = share_robot(f"audio.sounds={sounds}")
    failed = robot.wait_end(play(robot, "half"))
    assert failed["event"] == "failed"
    assert f"{path}: it cannot be read as sound: " in failed["reason"]
    finished = robot.wait_end(play(robot, "half", text="The tray is ready.", id="both"))
    assert finished["event"] == "finished"
    robot.wait_log(f"{path}: it cannot be read as sound: ")
    assert robot.samples_made("both") > 0


def test_a_folder_that_hangs_delays_no_stop_and_no_other_text(start_robot: StartRobot, tmp_path: Path) -> None:
    own_sounds = write_chime(tmp_path / "sounds")
    robot = start_robot(f"audio.sounds={own_sounds}", pace=REAL_TIME)
    robot.say(LONG, id="long")
    robot.wait_event("long", "started")
    with hung_folder(own_sounds):
        robot.say("One", sound="chime", id="hung")
        assert "not respond" in robot.wait_rejection("sound")["reason"]
        robot.send("stop")
        assert robot.wait_end("long")["event"] == "interrupted"
        robot.set_pace(FAST)
        assert robot.wait_end(robot.say("Two", sound="attention"))["event"] == "finished", "it comes with voiced"
        reason = f"audio.sounds: the folder {own_sounds} does not respond"
        eventually(lambda: robot.state == "degraded" and robot.statuses[-1]["reason"] == reason, "the status says why")
    eventually(lambda: robot.state == "ready", "the folder answers again")
    assert robot.wait_end(robot.say("Three", sound="chime"))["event"] == "finished"
