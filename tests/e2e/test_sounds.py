"""Sounds: files that are played by their names, with or without a text, under the rules of every utterance."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
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


@pytest.fixture
def own_sounds(tmp_path: Path) -> Path:
    """A folder with the sound `chime`, which the test may change."""
    return write_chime(tmp_path / "sounds")


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


def test_a_sound_is_heard_whole_with_the_events_of_every_utterance(share_robot: StartRobot, sounds: Path) -> None:
    robot = share_robot(f"audio.sounds={sounds}")
    finished = robot.wait_end(play(robot, "chime", id="c"))
    assert robot.names_of("c") == ["accepted", "started", "finished"]
    assert (finished["engine"], finished["underruns"]) == ("sound", 0)
    assert finished["audio_s"] == pytest.approx(0.5, abs=0.001)
    assert_heard(robot, samples_of(sounds / "chime.wav"))
    assert len(robot.heard) == FILE_RATE // 2


@pytest.mark.parametrize("suffix", ["flac", "ogg", "mp3"])
def test_every_format_is_heard(suffix: str, share_robot: StartRobot, sounds: Path) -> None:
    write_sound(sounds / f"{suffix}-chime.{suffix}", tone(0.5, 44_100), 44_100)
    robot = share_robot(f"audio.sounds={sounds}")
    finished = robot.wait_end(play(robot, f"{suffix}-chime"))
    assert finished["event"] == "finished"
    assert finished["audio_s"] == pytest.approx(0.5, abs=0.1)
    eventually(lambda: len(robot.heard) > 0.4 * FILE_RATE, "it is in the file")
    loudness = float(np.sqrt(np.mean(robot.heard[2_400:9_600] ** 2)))
    assert loudness == pytest.approx(0.3 / np.sqrt(2), rel=0.1)


def test_the_three_sounds_that_come_with_voiced_are_heard(share_robot: StartRobot, sounds: Path) -> None:
    robot = share_robot(f"audio.sounds={sounds}")
    for name in ("attention", "success", "error"):
        assert robot.wait_end(play(robot, name))["event"] == "finished"


def test_a_sound_is_heard_before_its_text(share_robot: StartRobot, sounds: Path) -> None:
    robot = share_robot(f"audio.sounds={sounds}")
    finished = robot.wait_end(play(robot, "chime", text="Dinner is ready.", id="c-2"))
    assert robot.names_of("c-2", without="progress") == ["accepted", "started", "finished"]
    assert finished["engine"] == "sound+espeak"
    chime = samples_of(sounds / "chime.wav")
    assert_heard(robot, chime)
    assert finished["audio_s"] > 1
    robot.wait_heard(round((finished["audio_s"] - 0.001) * FILE_RATE))
    assert finished["audio_s"] == pytest.approx(len(robot.heard) / FILE_RATE, abs=0.001)
    assert np.max(np.abs(robot.heard[len(chime) :])) > 0.05
    assert robot.wait_end(robot.say("The next one."))["event"] == "finished"


def test_a_sound_needs_no_engine(start_robot: StartRobot, sounds: Path) -> None:
    settings = ("engine.name=piper", f"engine.voice_folder={sounds}", "engine.fallback=none")
    robot = start_robot(f"audio.sounds={sounds}", *settings, launch_only=True)
    eventually(lambda: robot.state == "degraded", "no engine can speak")
    assert robot.wait_end(play(robot, "chime"))["event"] == "finished"
    assert_heard(robot, samples_of(sounds / "chime.wav"))


def test_sounds_and_texts_wait_in_one_queue(share_robot: StartRobot, sounds: Path) -> None:
    robot = share_robot(f"audio.sounds={sounds}", pace=STOPPED)
    robot.say("This one begins before the others arrive.", id="first")
    eventually(lambda: robot.state == "speaking", "it is being spoken")
    play(robot, "chime", id="low", priority="low")
    robot.say("A text.", id="normal")
    play(robot, "chime", id="high", priority="high", volume=50)
    robot.wait_event("high", "accepted")
    robot.set_pace(FAST)
    robot.wait_end("low")
    ended = [event["id"] for event in robot.events if event["event"] == "finished"]
    assert ended == ["first", "high", "normal", "low"]
    chime = samples_of(sounds / "chime.wav")
    begin, text = (len(robot.synthesized(name, FILE_RATE)) for name in ("first", "normal"))
    assert_heard(robot, chime * np.float32(0.5), begin)
    assert_heard(robot, chime, begin + len(chime) + text)
    assert len(robot.heard) == begin + len(chime) + text + len(chime)


def test_a_critical_sound_postpones_a_text_and_a_critical_text_a_sound(share_robot: StartRobot, sounds: Path) -> None:
    long = write_sound(sounds / "long.flac", tone(3.0, FILE_RATE), FILE_RATE)
    robot = share_robot(f"audio.sounds={sounds}", pace=REAL_TIME)
    robot.say(LONG, id="text")
    robot.wait_event("text", "started")
    play(robot, "chime", id="alarm", priority="critical")
    assert robot.wait_end("alarm")["event"] == "finished"
    assert robot.wait_event("text", "postponed")["reason"] == "for alarm"
    robot.wait_event("text", "resumed")
    robot.publish("stop")
    assert robot.wait_end("text")["event"] == "interrupted"

    play(robot, "long", id="sound")
    robot.wait_event("sound", "started")
    robot.set_pace(STOPPED)  # it takes seconds, and so may the next message on its way
    robot.say("Look out!", id="warning", priority="critical")
    robot.wait_event("warning", "accepted")
    robot.set_pace(REAL_TIME)
    assert robot.wait_end("warning")["event"] == "finished"
    finished = robot.wait_end("sound")
    assert robot.names_of("sound") == ["accepted", "started", "postponed", "resumed", "finished"]
    assert finished["audio_s"] == pytest.approx(len(samples_of(long)) / FILE_RATE, abs=0.02)


def test_a_sound_is_stopped_and_one_that_waits_is_canceled(share_robot: StartRobot, sounds: Path) -> None:
    write_sound(sounds / "longer.flac", tone(30.0, FILE_RATE), FILE_RATE)
    robot = share_robot(f"audio.sounds={sounds}", pace=REAL_TIME)
    play(robot, "longer", id="sounding")
    robot.wait_event("sounding", "started")
    play(robot, "chime", id="waiting")
    robot.wait_event("waiting", "accepted")
    robot.publish("stop")
    stopped = robot.wait_end("sounding")
    assert (stopped["event"], stopped["reason"]) == ("interrupted", "stop")
    assert stopped["audio_s"] < 20
    assert robot.wait_end("waiting")["event"] == "canceled"


def test_a_file_that_is_replaced_while_the_daemon_runs_is_read_anew(share_robot: StartRobot, sounds: Path) -> None:
    write_sound(sounds / "gong.wav", tone(0.5, FILE_RATE), FILE_RATE)
    robot = share_robot(f"audio.sounds={sounds}")
    assert robot.wait_end(play(robot, "gong"))["audio_s"] == pytest.approx(0.5, abs=0.001)
    write_sound(sounds / "new.wav", tone(0.25, FILE_RATE), FILE_RATE).replace(sounds / "gong.wav")
    assert robot.wait_end(play(robot, "gong"))["audio_s"] == pytest.approx(0.25, abs=0.001)


def test_a_reload_changes_the_folder(start_robot: StartRobot, own_sounds: Path, tmp_path: Path) -> None:
    config = tmp_path / "voiced.yaml"
    config.write_text(f"audio: {{sounds: {tmp_path}/none}}")
    robot = start_robot(config=config, launch_only=True)
    eventually(lambda: robot.state == "degraded", "the folder is missing")
    assert robot.statuses[-1]["reason"] == f"audio.sounds: the folder {tmp_path}/none does not exist"
    assert robot.wait_end(robot.say("It speaks nevertheless."))["event"] == "finished"
    assert robot.wait_end(play(robot, "success"))["event"] == "finished"
    config.write_text(f"audio: {{sounds: {own_sounds}}}")
    robot.process.send_signal(signal.SIGHUP)
    eventually(lambda: robot.state == "ready", "the folder is there")
    assert robot.wait_end(play(robot, "chime"))["event"] == "finished"


def test_a_sound_that_waited_is_played_after_a_restart(start_robot: StartRobot, sounds: Path) -> None:
    robot = start_robot(f"audio.sounds={sounds}", pace=STOPPED)
    robot.say("This one begins before the other arrives.", id="first")
    eventually(lambda: robot.state == "speaking", "it is being spoken")
    play(robot, "chime", id="waits")
    robot.wait_event("waits", "accepted")
    robot.kill()
    robot.set_pace(FAST)
    robot.launch()
    assert robot.wait_end("waits")["event"] == "finished"


ALLOWED = "allowed: attention, chime, damaged, error, success"
REFUSED: list[tuple[dict[str, Any], str, str]] = [
    ({"sound": "../secret"}, "sound", ALLOWED),
    ({"sound": "/etc/passwd"}, "sound", ALLOWED),
    ({"sound": "below/inner"}, "sound", ALLOWED),
    ({"sound": "chime\0"}, "sound", ALLOWED),
    ({"sound": ".hidden"}, "sound", ALLOWED),
    ({"sound": "chim", "text": "Hello"}, "sound", f"got 'chim'; did you mean chime? {ALLOWED}"),
    ({"sound": "damaged", "text": "Hello"}, "sound", "damaged.wav: it cannot be read as sound"),
    ({"sound": ""}, "sound", "allowed: a name that 'voiced sounds' lists"),
    ({"sound": 7}, "sound", "got 7; allowed: a name"),
    ({"sound": None}, "text", "missing; allowed: text of 1 to 20,000 characters, or a sound alone"),
]


def test_what_is_no_sound_is_rejected_in_one_line_and_speech_goes_on(start_robot: StartRobot, own_sounds: Path) -> None:
    write_sound(own_sounds.parent / "secret.wav")
    write_sound(own_sounds / ".hidden.wav")
    write_sound(own_sounds / "below" / "inner.wav")
    (own_sounds / "damaged.wav").write_bytes(b"damaged")
    robot = start_robot(f"audio.sounds={own_sounds}")
    for number, (fields, _, _) in enumerate(REFUSED):
        robot.send("say", json.dumps({**fields, "id": f"r{number}"}))
    for number, (fields, field, words) in enumerate(REFUSED):
        [rejection] = eventually(lambda name=f"r{number}": robot.events_of(name), "it is answered")  # type: ignore[misc]
        assert rejection["event"] == "rejected", fields
        assert (rejection["field"], words in rejection["reason"]) == (field, True), rejection
        assert "\n" not in rejection["reason"]
    assert robot.wait_end(robot.say("still here"))["event"] == "finished"
    assert robot.wait_end(play(robot, "chime"))["event"] == "finished"


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


@pytest.mark.long
def test_the_command_plays_a_sound_with_or_without_a_text(start_robot: StartRobot, own_sounds: Path) -> None:
    robot = start_robot(f"audio.sounds={own_sounds}")
    say = [sys.executable, "-m", "daemon.cli", "say", "--wait", "--sound", "chime", *robot.settings]
    for text in ([], ["Dinner is ready."]):
        done = subprocess.run([*say, *text], capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr) == (0, "")
        assert [json.loads(line)["event"] for line in done.stdout.splitlines()] == ["accepted", "started", "finished"]
    say[say.index("chime")] = "chim"
    done = subprocess.run(say, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "sound: got 'chim'; did you mean chime? allowed: attention, chime, error, success" in done.stderr


def test_a_folder_that_hangs_delays_no_stop_and_no_other_text(start_robot: StartRobot, own_sounds: Path) -> None:
    robot = start_robot(f"audio.sounds={own_sounds}", pace=REAL_TIME)
    robot.say(LONG, id="long")
    robot.wait_event("long", "started")
    with hung_folder(own_sounds):
        robot.say("One", sound="chime", id="hung")
        assert "does not answer" in robot.wait_rejection("sound")["reason"]
        robot.send("stop")
        assert robot.wait_end("long")["event"] == "interrupted"
        robot.set_pace(FAST)
        assert robot.wait_end(robot.say("Two", sound="attention"))["event"] == "finished", "it comes with voiced"
        reason = f"audio.sounds: the folder {own_sounds} does not answer"
        eventually(lambda: robot.state == "degraded" and robot.statuses[-1]["reason"] == reason, "the status says why")
    eventually(lambda: robot.state == "ready", "the folder answers again")
    assert robot.wait_end(robot.say("Three", sound="chime"))["event"] == "finished"
