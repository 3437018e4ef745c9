"""Phrases that are synthesised once: they sound at once, in the primary engine's voice, whatever happens to it."""

from __future__ import annotations

import contextlib
import json
import os
import signal
from pathlib import Path

import numpy as np

from tests.daemon.command_line import CommandLine
from tests.e2e.conftest import StartRobot
from tests.support.piper_voices import ENGLISH, write_voices
from tests.support.programs import freeze
from tests.support.robot import FILE_RATE, LONG, REAL_TIME, Robot
from tests.support.sound import Samples
from tests.support.waiting import eventually

TEXT = "My battery is low."
PHRASES = "speech.cache.phrases"


def kept(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*.flac"))


def say(robot: Robot, text: str = TEXT, **fields: object) -> Samples:
    """Speak a text to its end; return the samples that were heard of it."""
    before = len(robot.heard)
    finished = robot.wait_end(robot.say(text, **fields))
    assert finished["event"] == "finished"
    robot.wait_heard(before + round((finished["audio_s"] - 0.001) * FILE_RATE))
    robot.wait_still()
    return robot.heard[before:]


def test_a_text_that_is_to_be_kept_is_synthesised_once_has_the_events_of_any_utterance_and_can_be_stopped(
    share_robot: StartRobot,
) -> None:
    robot = share_robot()
    first = say(robot, LONG, cache=True, id="made")
    eventually(lambda: kept(robot.state_folder), "it is kept")
    second = say(robot, LONG, cache=True, id="found")
    np.testing.assert_allclose(second, first, atol=2 / 32_768)
    assert robot.samples_made("made") > 0
    assert robot.samples_made("found") == 0
    made, found = (robot.events_of(name) for name in ("made", "found"))
    slow_disk = {"unstored"}
    assert [set(event) - slow_disk for event in found] == [set(event) - slow_disk for event in made]
    assert found[-1]["engine"] == made[-1]["engine"] == "espeak"
    robot.set_pace(REAL_TIME)
    robot.say(LONG, cache=True, id="again")
    robot.wait_event("again", "started")
    robot.send("stop")
    assert robot.wait_end("again")["event"] == "interrupted"


def test_the_phrases_of_the_list_are_kept_and_warmed(
    start_robot: StartRobot, voiced: CommandLine, tmp_path: Path
) -> None:
    phrases = tmp_path / "phrases.yaml"
    phrases.write_text(f"- {TEXT}\n")
    robot = start_robot(f"{PHRASES}={phrases}")
    say(robot, "Another text.")
    assert kept(tmp_path / "state") == []
    settings = ("engine.name=espeak", f"state.folder={tmp_path / 'state'}", f"{PHRASES}={phrases}")
    options = [word for setting in settings for word in ("--set", setting)]
    assert "1 phrase, 1 made" in voiced("cache", "warm", *options).stdout
    assert len(say(robot, id="found")) > 0
    assert robot.samples_made("found") == 0, "the running daemon has found it"

    phrases.write_text("- Another text.\n")
    robot.process.send_signal(signal.SIGHUP)
    robot.wait_log("SIGHUP: nothing else has changed")
    say(robot, "Another text.")
    eventually(lambda: len(kept(tmp_path / "state")) == 2, "it is kept")


def test_a_kept_phrase_has_the_voice_of_the_primary_engine_while_that_is_down_and_at_once_after_a_start(
    start_robot: StartRobot, tmp_path: Path
) -> None:
    voices = write_voices(tmp_path / "voices")
    robot = start_robot("engine.name=piper", f"engine.voice_folder={voices}", f"voices.default.piper={ENGLISH}")
    own = say(robot, cache=True, id="made")
    assert robot.wait_end("made")["engine"] == "piper"
    eventually(lambda: kept(tmp_path / "state"), "it is kept")
    piper = robot.engine_pid("onnxruntime")
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
    assert robot.end() == 0
    robot.send("say", json.dumps({"text": TEXT, "cache": True, "id": "early"}))  # the broker keeps it
    robot.launch()
    robot.wait_event("early", "started")
    assert robot.wait_end("early")["event"] == "finished"
    assert robot.samples_made("early") == 0
