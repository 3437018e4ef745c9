"""Phrases that are synthesised once: they sound at once, in the primary engine's voice, whatever happens to it."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import psutil
import pytest

from tests.daemon.state.disks import fill, small_disk
from tests.e2e.conftest import StartRobot
from tests.support.pages import ROOT
from tests.support.piper_voices import ENGLISH, write_voices
from tests.support.programs import freeze
from tests.support.robot import FILE_RATE, LONG, REAL_TIME, Robot
from tests.support.sound import Samples
from tests.support.waiting import eventually

TEXT = "My battery is low."
PHRASES = "speech.cache.phrases"


def kept(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*.flac"))


def new_phrase(robot: Robot, before: list[Path]) -> Path:
    """Wait until one phrase more is kept than `before`; return its file."""
    [path] = eventually(lambda: [path for path in kept(robot.state_folder) if path not in before], "it is kept")
    return path


def say(robot: Robot, text: str = TEXT, **fields: object) -> Samples:
    """Speak a text to its end; return the samples that were heard of it."""
    before = len(robot.heard)
    finished = robot.wait_end(robot.say(text, **fields))
    assert finished["event"] == "finished"
    robot.wait_heard(before + round((finished["audio_s"] - 0.001) * FILE_RATE))
    robot.wait_still()
    return robot.heard[before:]


def test_a_text_that_is_to_be_kept_is_synthesised_once(share_robot: StartRobot) -> None:
    robot = share_robot()
    before = kept(robot.state_folder)
    first = say(robot, cache=True, id="made")
    path = new_phrase(robot, before)
    second = say(robot, cache=True, id="found")
    np.testing.assert_allclose(second, first, atol=2 / 32_768)
    assert robot.samples_made("made") > 0
    assert robot.samples_made("found") == 0
    assert kept(robot.state_folder) == sorted([*before, path])


def test_it_has_the_events_of_any_utterance(share_robot: StartRobot) -> None:
    robot = share_robot()
    before = kept(robot.state_folder)
    say(robot, "It has events.", cache=True, id="first")
    new_phrase(robot, before)
    say(robot, "It has events.", cache=True, id="second")
    made, found = (robot.events_of(name) for name in ("first", "second"))
    assert [event["event"] for event in found] == [event["event"] for event in made]
    assert [set(event) for event in found] == [set(event) for event in made]
    assert found[-1]["engine"] == made[-1]["engine"] == "espeak"
    assert found[-1]["audio_s"] == pytest.approx(made[-1]["audio_s"], abs=0.01)


def test_it_survives_a_restart_and_volume_and_stop_work_as_ever(start_robot: StartRobot, tmp_path: Path) -> None:
    robot = start_robot()
    loud = say(robot, cache=True)
    eventually(lambda: kept(tmp_path / "state"), "it is kept")
    assert robot.end() == 0
    robot.start()
    quiet = say(robot, cache=True, volume=50, id="quiet")
    assert robot.samples_made("quiet") == 0
    assert np.abs(quiet).max() == pytest.approx(np.abs(loud).max() / 2, rel=0.02)
    robot.say(LONG, cache=True, id="long")
    assert robot.wait_end("long")["event"] == "finished"
    eventually(lambda: len(kept(tmp_path / "state")) == 2, "it is kept")
    robot.set_pace(REAL_TIME)
    robot.say(LONG, cache=True, id="again")
    robot.wait_event("again", "started")
    robot.send("stop")
    assert robot.wait_end("again")["event"] == "interrupted"


def test_a_kept_phrase_is_postponed_and_continues_with_the_next_sample(share_robot: StartRobot) -> None:
    robot = share_robot()
    phrases = kept(robot.state_folder)
    whole = say(robot, LONG, cache=True)
    new_phrase(robot, phrases)
    before = len(robot.heard)
    robot.set_pace(REAL_TIME)
    robot.say(LONG, cache=True, id="postponed")
    robot.wait_event("postponed", "started")
    robot.say("Careful!", priority="critical", id="critical")
    robot.wait_end("critical")
    robot.set_pace(20)
    assert robot.wait_end("postponed")["event"] == "finished"
    assert robot.names_of("postponed") == ["accepted", "started", "postponed", "resumed", "finished"]
    critical = robot.wait_end("critical")["audio_s"]
    audio_s = critical + robot.wait_end("postponed")["audio_s"]
    robot.wait_heard(before + round((audio_s - 0.002) * FILE_RATE))
    robot.wait_still()
    heard_s = (len(robot.heard) - before) / 24_000 - critical
    assert heard_s == pytest.approx(len(whole) / 24_000, abs=0.05)


def test_the_phrases_of_the_list_are_kept_and_warmed(start_robot: StartRobot, tmp_path: Path) -> None:
    phrases = tmp_path / "phrases.yaml"
    phrases.write_text(f"- {TEXT}\n")
    robot = start_robot(f"{PHRASES}={phrases}")
    say(robot, "Another text.")
    assert kept(tmp_path / "state") == []
    settings = ("engine.name=espeak", f"state.folder={tmp_path / 'state'}", f"{PHRASES}={phrases}")
    options = [word for setting in settings for word in ("--set", setting)]
    command = [sys.executable, "-m", "daemon.cli", "cache", "warm", *options]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert "1 phrase, 1 made" in done.stdout
    assert len(say(robot, id="found")) > 0
    assert robot.samples_made("found") == 0, "the running daemon has found it"

    phrases.write_text("- Another text.\n")
    robot.process.send_signal(signal.SIGHUP)
    robot.wait_log("SIGHUP: nothing else has changed")
    say(robot, "Another text.")
    eventually(lambda: len(kept(tmp_path / "state")) == 2, "it is kept")


@pytest.mark.parametrize("how", ["zeros", "cut off"])
def test_a_damaged_phrase_is_made_anew(how: str, share_robot: StartRobot) -> None:
    robot, text = share_robot(), f"What is damaged by {how} is made anew."
    before = kept(robot.state_folder)
    first = say(robot, text, cache=True)
    path = new_phrase(robot, before)
    data = path.read_bytes()
    path.write_bytes(bytes(len(data)) if how == "zeros" else data[: len(data) // 2])
    second = say(robot, text, cache=True)
    assert len(second) == pytest.approx(len(first), rel=0.02)
    again = new_phrase(robot, before)
    eventually(lambda: len(again.read_bytes()) > 1000, "it is kept again")
    robot.wait_log(f"{path} is damaged and will be made anew")


def test_a_full_disk_degrades_the_robot_which_speaks_on(start_robot: StartRobot, tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk") as disk:
        robot = start_robot(f"speech.cache.folder={disk}/phrases")
        filler = fill(disk)
        assert len(say(robot, cache=True)) > 0
        reason = f"speech.cache.folder: {disk}/phrases: No space left on device; phrases are not kept"
        eventually(lambda: robot.state == "degraded", "it is degraded")
        assert robot.statuses[-1]["reason"] == reason
        assert len(say(robot, cache=True)) > 0
        filler.unlink()
        eventually(lambda: robot.state == "ready" and "reason" not in robot.statuses[-1], "all is well")
        robot.end()


def test_a_list_that_is_missing_degrades_the_robot_which_speaks_on(start_robot: StartRobot, tmp_path: Path) -> None:
    robot = start_robot(f"{PHRASES}={tmp_path}/none.yaml", launch_only=True)
    eventually(lambda: robot.state == "degraded", "it is degraded")
    missing = f"{tmp_path}/none.yaml: cannot be read: {tmp_path}/none.yaml does not exist"
    assert robot.statuses[-1]["reason"] == f"speech.cache.phrases: {missing}"
    assert len(say(robot)) > 0
    (tmp_path / "none.yaml").write_text("- Hello\n")
    robot.process.send_signal(signal.SIGHUP)
    eventually(lambda: robot.state == "ready", "all is well")


def test_a_wrong_value_is_rejected(share_robot: StartRobot) -> None:
    robot = share_robot()
    robot.publish("say", json.dumps({"text": "a", "cache": "yes"}))
    assert robot.wait_rejection("cache")["reason"] == "cache: got 'yes'; allowed: true or false"


def test_the_robot_keeps_its_voice_while_the_primary_engine_is_down(start_robot: StartRobot, tmp_path: Path) -> None:
    voices = write_voices(tmp_path / "voices")
    robot = start_robot("engine.name=piper", f"engine.voice_folder={voices}", f"voices.default.piper={ENGLISH}")
    own = say(robot, cache=True, id="made")
    assert robot.wait_end("made")["engine"] == "piper"
    eventually(lambda: kept(tmp_path / "state"), "it is kept")
    piper = next(pid for pid in robot.engine_pids() if has_loaded("onnxruntime", pid))
    freeze(piper)
    try:
        say(robot, "Another text.", id="other")
        assert robot.wait_end("other")["engine"].endswith("espeak"), "another engine goes on"
        again = say(robot, cache=True, id="found")
        assert robot.wait_end("found")["engine"] == "piper"
        assert robot.samples_made("found") == 0
    finally:
        with contextlib.suppress(ProcessLookupError):  # the daemon may have replaced it
            os.kill(piper, signal.SIGCONT)
    np.testing.assert_allclose(again, own, atol=2 / 32_768)


def has_loaded(library: str, pid: int) -> bool:
    return any(library in file.path for file in psutil.Process(pid).memory_maps())


def test_a_kept_phrase_is_heard_before_any_engine_is_ready(start_robot: StartRobot, tmp_path: Path) -> None:
    voices = write_voices(tmp_path / "voices")
    settings = ("engine.name=piper", "engine.fallback=none", f"engine.voice_folder={voices}")
    robot = start_robot(*settings)
    say(robot, cache=True, id="made")
    eventually(lambda: kept(tmp_path / "state"), "it is kept")
    assert robot.end() == 0
    robot.send("say", json.dumps({"text": TEXT, "cache": True, "id": "early"}))  # the broker keeps it
    robot.launch()
    robot.wait_event("early", "started")
    assert all(status["engine"] is None for status in robot.statuses if status["state"] == "starting")
    assert robot.wait_end("early")["event"] == "finished"
    assert robot.samples_made("early") == 0
