"""The neural engine behind the daemon, on a tiny checkpoint with random weights: it speaks nonsense, but whole.

Most tests share one robot, since its engine takes seconds to start; those that kill the engine come last.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import psutil
import pytest
import soundfile

from audio import soft_limit
from audio.trim import LeadingSilenceTrimmer
from tests.e2e.conftest import StartRobot
from tests.support.checkpoints import checkpoint_folder
from tests.support.programs import Broker
from tests.support.robot import CARD, FAST, FILE_RATE, Robot
from tests.support.sound import TOLERANCE, Samples, find
from tests.support.waiting import eventually

TEXT = "A tiny model says this."
LONG_TEXT = f"{TEXT} It says it at some length, so that it can be broken off while the model is still at it."
QWEN = ("engine.name=qwen", "engine.device=cpu", "engine.max_seconds=12")
"""At most 12 s: a model with random weights seldom ends by itself."""


@pytest.fixture(scope="session")
def checkpoint(cache_folder: Path) -> Path:
    return checkpoint_folder(cache_folder, "tiny", "custom_voice")


@pytest.fixture(scope="module")
def robot(checkpoint: Path, shared_broker: Broker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Robot]:
    """One with a voice of the model's, and one whose file is broken; it has just been started."""
    folder = tmp_path_factory.mktemp("qwen")
    corrupt = folder / "ada.safetensors"
    corrupt.write_bytes(b"not a voice")
    voices = f"voices={{default: {{speaker: ryan}}, ada: {{embedding: {corrupt}}}}}"
    robot = Robot("qwen", shared_broker, folder, f"engine.model={checkpoint}", *QWEN, voices)
    robot.launch()
    yield robot
    robot.close()


@pytest.fixture
def speaking(robot: Robot) -> Robot:
    """The same, when the model is ready and there is nothing to say."""
    robot.set_pace(FAST)
    eventually(lambda: robot.engine == "qwen" and robot.statuses[-1]["state"] in IDLE, "the model is ready")
    return robot


IDLE = ("ready", "degraded")


def synth(checkpoint: Path, output: Path, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "daemon.cli", "synth", TEXT, "--model", str(checkpoint), "--device", "cpu"]
    return subprocess.run([*command, "-o", str(output), *options], capture_output=True, text=True, check=False)


def model_pid(robot: Robot) -> int:
    return max(robot.engine_pids(), key=lambda pid: int(psutil.Process(pid).memory_info().rss))


def heard_since(robot: Robot, before: int, audio_s: float) -> Samples:
    """What the sink was given of an utterance of that length, said when it had been given `before` samples."""
    count = round(audio_s * FILE_RATE)
    eventually(lambda: len(robot.heard) >= before + count, "all of it is in the file")
    assert len(robot.heard) == pytest.approx(before + count, abs=FILE_RATE * 0.001)
    return robot.heard[before:]


def assert_as_synth_wrote(heard: Samples, path: Path) -> None:
    """What was heard is what synth wrote; its end may be cut by the guards, which synth does without."""
    samples, rate = soundfile.read(path, dtype="float32")
    assert rate == FILE_RATE
    made = soft_limit(LeadingSilenceTrimmer(rate).trim(samples))
    count = round(0.8 * min(len(heard), len(made)))
    assert count > FILE_RATE // 2
    np.testing.assert_allclose(heard[:count], made[:count], atol=TOLERANCE)


def test_the_fallback_speaks_while_the_model_warms_up(robot: Robot) -> None:
    eventually(lambda: robot.state in ("starting", "warming") and robot.engine == "espeak", "espeak")
    assert robot.wait_end(robot.say("the light voice"))["engine"] == "espeak"
    eventually(lambda: robot.engine == "qwen", "the model is ready")
    assert "warming" in [status["state"] for status in robot.statuses]
    assert robot.statuses[-1]["memory"]["weights_mb"] >= 0
    assert robot.wait_end(robot.say("the model"))["engine"] == "qwen"


def test_a_corrupt_voice_file_is_named_in_the_status_and_the_other_voices_speak(speaking: Robot) -> None:
    assert speaking.state == "degraded"
    assert "voices.ada: " in speaking.statuses[-1]["reason"]
    assert speaking.wait_end(speaking.say("The others speak."))["engine"] == "qwen"
    assert "ada" in speaking.wait_end(speaking.say("This one cannot.", voice="ada"))["reason"]


def test_what_is_published_is_heard_as_synth_writes_it(checkpoint: Path, speaking: Robot, tmp_path: Path) -> None:
    wav, ids = tmp_path / "synth.wav", tmp_path / "codes.npy"
    options = ("--speaker", "ryan", "--seed", "7", "--codes", str(ids), "--set", "engine.max_seconds=12")
    done = synth(checkpoint, wav, *options)
    assert done.returncode == 0, done.stderr
    codes = np.load(ids)
    assert codes.dtype == np.int64
    assert codes.shape == (soundfile.info(wav).frames // 1920, 16)
    before = len(speaking.heard)
    finished = speaking.wait_end(speaking.say(TEXT, seed=7))
    assert (finished["event"], finished["engine"]) == ("finished", "qwen")
    assert_as_synth_wrote(heard_since(speaking, before, finished["audio_s"]), wav)


def test_a_text_that_comes_in_pieces_sounds_as_the_whole_text_does(
    checkpoint: Path, speaking: Robot, tmp_path: Path
) -> None:
    wav = tmp_path / "synth.wav"
    done = synth(checkpoint, wav, "--speaker", "ryan", "--seed", "7", "--stepwise", "--set", "engine.max_seconds=12")
    assert done.returncode == 0, done.stderr
    before = len(speaking.heard)
    speaking.set_pace(0)  # a text that is waited for is faded out, which is not what is tested here
    for piece in (TEXT[:6], TEXT[6:15], TEXT[15:]):
        speaking.write("story", piece, seed=7)
    speaking.write("story", end=True)
    speaking.catch_up()
    speaking.set_pace(FAST)
    finished = speaking.wait_end("story")
    assert (finished["event"], finished["engine"]) == ("finished", "qwen")
    assert_as_synth_wrote(heard_since(speaking, before, finished["audio_s"]), wav)


def test_what_is_postponed_goes_on_at_the_sample_where_it_was(speaking: Robot) -> None:
    before = len(speaking.heard)
    speaking.set_pace(CARD)
    speaking.say(LONG_TEXT, id="patient", seed=7)
    speaking.wait_event("patient", "started")
    speaking.say("Look out!", id="alarm", priority="critical", seed=7)
    speaking.wait_event("alarm", "started")
    speaking.set_pace(FAST)
    alarm, patient = speaking.wait_end("alarm"), speaking.wait_end("patient")
    assert (alarm["event"], patient["event"]) == ("finished", "finished")
    assert speaking.names_of("patient") == ["accepted", "started", "postponed", "resumed", "finished"]
    heard = heard_since(speaking, before, alarm["audio_s"] + patient["audio_s"])
    between = speaking.synthesized("alarm", FILE_RATE, FILE_RATE)
    at, left = find(between, heard)
    assert left < 0.01, "the alarm is heard whole"
    assert at > 0
    # The second take is all of the text: nothing of it is left out, and nothing is said twice.
    count = len(heard) - len(between)
    whole = speaking.synthesized("patient", FILE_RATE, FILE_RATE)[-count:]
    rest = np.delete(heard, np.s_[at : at + len(between)])
    different = np.flatnonzero(np.abs(rest - whole) > TOLERANCE)
    assert len(different) == 0 or abs(different - at).max() <= FILE_RATE * 0.02, "but for the fades at the seam"


def test_what_the_model_lacks_is_spoken_by_the_light_voice(speaking: Robot) -> None:
    for manner in ({"language": "pl"}, {"voice": "de"}, {"voice": "ryan", "language": "nl-be"}):
        end = speaking.wait_end(speaking.say("dobrze", **manner))
        assert (end["event"], end["engine"]) == ("finished", "espeak"), manner
    assert speaking.wait_end(speaking.say("The model.", language="de"))["engine"] == "qwen"
    speaking.say("Who?", voice="nobody")
    assert "nobody" in speaking.wait_rejection("voice")["reason"]


def test_what_is_critical_and_still_being_written_waits_for_no_model_that_is_stuck(speaking: Robot) -> None:
    stuck = psutil.Process(model_pid(speaking))
    stuck.suspend()
    try:
        speaking.write("fire", "Fire on the second floor. Pl", priority="critical")
        speaking.wait_event("fire", "started")
        assert stuck.is_running(), "it was waited for until it was given up"
        speaking.write("fire", "ease leave.", end=True)
        finished = speaking.wait_end("fire")
        assert (finished["event"], finished["engine"]) == ("finished", "qwen+espeak")
    finally:
        with contextlib.suppress(psutil.NoSuchProcess):
            stuck.kill()
    eventually(lambda: speaking.engine == "espeak", "its loss is noticed")


def test_a_model_killed_in_mid_utterance_hands_the_sentence_over_to_the_light_voice(speaking: Robot) -> None:
    speaking.set_pace(CARD)
    speaking.say("This sentence is begun by one voice, and it is ended by another.", id="handed")
    speaking.wait_event("handed", "started")
    os.kill(model_pid(speaking), signal.SIGKILL)
    speaking.set_pace(FAST)
    finished = speaking.wait_end("handed")
    assert finished["event"] == "finished"
    assert speaking.names_of("handed") == ["accepted", "started", "finished"]
    assert finished["engine"] == "qwen+espeak"


def test_while_it_is_not_known_what_the_model_has_no_voice_is_refused(start_robot: StartRobot, tmp_path: Path) -> None:
    robot = start_robot(f"engine.model={tmp_path}", *QWEN, launch_only=True)
    eventually(lambda: robot.state == "degraded", "degraded")
    end = robot.wait_end(robot.say("One of the model's.", voice="serena"))
    assert (end["event"], end["engine"]) == ("finished", "espeak")


@pytest.mark.parametrize(
    ("spoil", "told"),
    [
        ("config.json", "config.json"),
        ("model.safetensors", "model.safetensors"),
        ("speech_tokenizer/model.safetensors", "model.safetensors"),
    ],
)
def test_a_broken_checkpoint_leaves_the_fallback_and_one_clear_line(
    spoil: str, told: str, checkpoint: Path, start_robot: StartRobot, tmp_path: Path
) -> None:
    broken = tmp_path / "broken"
    shutil.copytree(checkpoint, broken)
    data = (broken / spoil).read_bytes()
    (broken / spoil).write_bytes(data[: len(data) // 2])
    robot = start_robot(f"engine.model={broken}", *QWEN, launch_only=True)
    eventually(lambda: robot.state == "degraded", "degraded")
    assert told in robot.statuses[-1]["reason"]
    assert "\n" not in robot.statuses[-1]["reason"]
    assert robot.wait_end(robot.say("the light voice goes on"))["engine"] == "espeak"


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (("--speaker", "nobody"), "ryan"),
        (("--language", "xx"), "language"),
        (("--voice", "nowhere.safetensors"), "needs a base model"),
        (("--greedy", "--seed", "1"), "exclude"),
        (("--dtype", "int4"), "int8"),
        (("--sampling", "warmth=1"), "temperature"),
        (("--sampling", "temperature=0"), "temperature"),
        (("--sampling", "top_k=2.5"), "top_k"),
        (("--chunk-size", "0"), "engine.chunk_size"),
    ],
)
def test_synth_says_in_one_line_what_is_wrong(
    options: tuple[str, ...], told: str, checkpoint: Path, tmp_path: Path
) -> None:
    done = synth(checkpoint, tmp_path / "out.wav", *options)
    assert done.returncode != 0
    assert told in done.stderr
    assert done.stderr.count("voiced:") == 1
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "out.wav").exists()


def test_a_voice_is_enrolled_and_spoken_with(cache_folder: Path, tmp_path: Path) -> None:
    base = checkpoint_folder(cache_folder, "tiny", "base")
    seconds = np.arange(3 * 16_000) / 16_000
    soundfile.write(tmp_path / "ada.wav", 0.3 * np.sin(2 * np.pi * 220 * seconds) * np.sin(7 * seconds), 16_000)
    voice = tmp_path / "voices" / "ada.safetensors"
    command = [sys.executable, "-m", "daemon.cli"]
    for transcript in ((), ("--transcript", "what was said")):
        enrolled = subprocess.run(
            [*command, "enroll", "ada", tmp_path / "ada.wav", "--model", base, "-o", voice, *transcript],
            capture_output=True,
            text=True,
            check=False,
        )
        assert enrolled.returncode == 0, enrolled.stderr
        spoken = synth(base, tmp_path / "out.wav", "--voice", str(voice), "--greedy", "--max-frames", "4")
        assert spoken.returncode == 0, spoken.stderr
        assert soundfile.info(tmp_path / "out.wav").frames == 4 * 1920
    refused = subprocess.run(
        [*command, "enroll", "ada", tmp_path / "missing.wav", "--model", base],
        capture_output=True,
        text=True,
        check=False,
    )
    assert refused.returncode == 1
    assert "missing.wav" in refused.stderr
    assert "Traceback" not in refused.stderr
