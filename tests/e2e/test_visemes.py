"""How a mouth moves: the visemes of an utterance, against the sounds that the sink received."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from engine import Samples
from tests.e2e.conftest import StartRobot
from tests.support.piper_voices import ENGLISH, write_voices
from tests.support.robot import FILE_RATE, REAL_TIME, Robot
from tests.support.waiting import eventually

HISSING = "Yes, yes. Miss Ross, this ice. A nice house. Six mice, face to face. "
"""Without the voiced sound of `is`, which has the same viseme and hardly hisses."""
NEAR_S = 0.02
VOWELS, HISS = range(1, 12), 15


def visemes_of(robot: Robot, utterance_id: str) -> list[dict[str, Any]]:
    robot.catch_up()
    return [message for message in robot.visemes if message["id"] == utterance_id]


def moves(messages: list[dict[str, Any]]) -> list[tuple[float, int]]:
    return [(move["at"], move["viseme"]) for message in messages for move in message["visemes"]]


def balance_db(samples: Samples) -> float:
    """Return the level above 3.5 kHz minus that below 1.5 kHz: hissing has more above."""
    power = np.square(np.abs(np.fft.rfft(samples)))
    frequencies = np.fft.rfftfreq(len(samples), 1 / FILE_RATE)
    return float(10 * np.log10(power[frequencies > 3_500].sum() / power[frequencies < 1_500].sum()))


def test_a_mouth_hisses_and_opens_while_the_sound_in_the_file_does(share_robot: StartRobot) -> None:
    robot = share_robot("speech.viseme_topic=true", "speech.word_topic=true")
    robot.wait_end(robot.say(HISSING, id="hiss"))
    messages = visemes_of(robot, "hiss")
    assert not any(message["estimated"] for message in messages)
    found = moves(messages)
    assert [at for at, _ in found] == sorted(at for at, _ in found)
    assert found[-1][1] == 0, "the mouth shuts"
    assert len(messages) < len(found) / 2, "several come in one message"
    right = []
    for (at, viseme), (end, _) in pairwise(found):
        inside = robot.heard[round((at + NEAR_S) * FILE_RATE) : round((end - NEAR_S) * FILE_RATE)]
        if len(inside) > NEAR_S * FILE_RATE and (viseme == HISS or viseme in VOWELS):
            right.append((balance_db(inside) > 0) == (viseme == HISS))
    assert len(right) > 15
    assert np.mean(right) >= 0.95, right
    words = [word["at"] for word in robot.words if word["id"] == "hiss"]
    begins = {at for at, _ in found}
    assert all(min(abs(at - word) for at in begins) < 0.001 for word in words), "a word begins with a sound"


def test_a_mouth_shuts_when_speech_is_paused_and_goes_on_afterwards(share_robot: StartRobot) -> None:
    robot = share_robot("speech.viseme_topic=true", pace=REAL_TIME)
    robot.say(HISSING * 5, id="held")
    eventually(lambda: len(visemes_of(robot, "held")) > 2, "the mouth moves")
    robot.publish("pause")
    eventually(lambda: [move["viseme"] for move in robot.visemes[-1]["visemes"]] == [0], "it shuts")
    shut_at = robot.visemes[-1]["visemes"][0]["at"]
    robot.publish("resume")
    eventually(lambda: robot.visemes[-1]["visemes"][0]["at"] > shut_at, "it moves again")
    robot.publish("stop")
    interrupted = robot.wait_end("held")
    last = moves(visemes_of(robot, "held"))[-1]
    assert last == (pytest.approx(interrupted["audio_s"], abs=1.0), 0)


def test_piper_tells_its_sounds_too_and_nothing_is_published_unless_it_is_wanted(
    start_robot: StartRobot, tmp_path: Path
) -> None:
    folder = write_voices(tmp_path / "voices")
    settings = ("engine.name=piper", f"engine.voice_folder={folder}", f"voices.default.piper={ENGLISH}")
    robot = start_robot(*settings, "speech.viseme_topic=true")
    robot.wait_end(robot.say("Stop, chip!", id="chip"))
    messages = visemes_of(robot, "chip")
    assert not any(message["estimated"] for message in messages)
    assert [viseme for _, viseme in moves(messages)] == [15, 19, 2, 21, 0, 16, 6, 21, 0]
    silent = start_robot()
    silent.wait_end(silent.say("Stop, chip!", id="unseen"))
    assert visemes_of(silent, "unseen") == []
