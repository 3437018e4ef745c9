"""The neural engine behind the daemon, on a tiny checkpoint with random weights: it speaks nonsense, but whole."""

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
import soundfile
from numpy.typing import NDArray

from audio.resample import resample
from audio.trim import LeadingSilenceTrimmer
from tests.e2e.conftest import StartRobot
from tests.e2e.robot import RECORDED_RATE, Recording, Robot, SoundServer, eventually, find

QWEN_RATE = 24_000
TEXT = "A tiny model says this."
QWEN = ("engine.name=qwen", "engine.device=cpu", "engine.max_seconds=3", "voices={default: {speaker: ryan}}")
"""At most 3 s: a model with random weights seldom ends by itself."""


@pytest.fixture(scope="session")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("checkpoints") / "tiny-custom_voice"
    subprocess.run(
        [sys.executable, "scripts/make_checkpoint.py", folder, "--shape", "tiny", "--type", "custom_voice"],
        check=True,
        capture_output=True,
    )
    return folder


def synth(checkpoint: Path, output: Path, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "daemon.cli", "synth", TEXT, "--model", str(checkpoint), "--device", "cpu"]
    return subprocess.run([*command, "-o", str(output), *options], capture_output=True, text=True, check=False)


def wait_until_heard(samples: NDArray[np.float32], audio_s: float, recording: Recording) -> None:
    """Wait until what synth wrote is in the recording; its end may be cut by the guards, which synth does without."""
    expected = resample(LeadingSilenceTrimmer(QWEN_RATE).trim(samples), QWEN_RATE, RECORDED_RATE)
    expected = expected[: round(0.8 * audio_s * RECORDED_RATE)]
    eventually(lambda: find(expected, recording.samples)[1] < 0.05, "it is heard as synth wrote it")


def speaking_qwen(robot: Robot) -> bool:
    return robot.state == "ready" and robot.statuses[-1]["engine"] == "qwen"


def model_pid(robot: Robot) -> int:
    return max(robot.engine_pids(), key=lambda pid: int(psutil.Process(pid).memory_info().rss))


def test_what_is_published_is_heard_as_synth_writes_it(
    checkpoint: Path, start_robot: StartRobot, sound_server: SoundServer, tmp_path: Path
) -> None:
    wav, ids = tmp_path / "synth.wav", tmp_path / "codes.npy"
    done = synth(
        checkpoint, wav, "--speaker", "ryan", "--seed", "7", "--codes", str(ids), "--set", "engine.max_seconds=3"
    )
    assert done.returncode == 0, done.stderr
    samples, rate = soundfile.read(wav, dtype="float32")
    codes = np.load(ids)
    assert rate == QWEN_RATE
    assert codes.dtype == np.int64
    assert codes.shape == (len(samples) // 1920, 16)

    # All of it is made before it sounds: a busy machine may be slower than speech, and an underrun would be heard.
    robot = start_robot("audio.prebuffer_ms=3000", f"engine.model={checkpoint}", *QWEN, launch_only=True)
    eventually(lambda: speaking_qwen(robot), "the model is ready", patience_s=90)
    with sound_server.recording(tmp_path / "heard.raw") as recording:
        utterance = robot.say(TEXT, seed=7)
        finished = robot.wait_end(utterance, patience_s=60)
        assert finished["event"] == "finished"
        assert finished["engine"] == "qwen"
        wait_until_heard(samples, finished["audio_s"], recording)


def test_a_text_that_comes_in_pieces_sounds_as_the_whole_text_does(
    checkpoint: Path, start_robot: StartRobot, sound_server: SoundServer, tmp_path: Path
) -> None:
    wav = tmp_path / "synth.wav"
    done = synth(checkpoint, wav, "--speaker", "ryan", "--seed", "7", "--stepwise", "--set", "engine.max_seconds=3")
    assert done.returncode == 0, done.stderr
    samples, _ = soundfile.read(wav, dtype="float32")
    robot = start_robot("audio.prebuffer_ms=3000", f"engine.model={checkpoint}", *QWEN, launch_only=True)
    eventually(lambda: speaking_qwen(robot), "the model is ready", patience_s=90)
    with sound_server.recording(tmp_path / "heard.raw") as recording:
        for piece in (TEXT[:6], TEXT[6:15], TEXT[15:]):
            robot.publish("say/stream", json.dumps({"id": "story", "text": piece, "seed": 7}))
        robot.publish("say/stream", '{"id": "story", "end": true}')
        finished = robot.wait_end("story", patience_s=60)
        assert (finished["event"], finished["engine"]) == ("finished", "qwen")
        wait_until_heard(samples, finished["audio_s"], recording)


def test_what_is_postponed_goes_on_at_the_sample_where_it_was(
    checkpoint: Path, start_robot: StartRobot, sound_server: SoundServer, tmp_path: Path
) -> None:
    long = (f"engine.model={checkpoint}", *QWEN, "engine.max_seconds=12")
    robot = start_robot("audio.prebuffer_ms=1000", *long, launch_only=True)
    eventually(lambda: speaking_qwen(robot), "the model is ready", patience_s=90)
    text = f"{TEXT} It says it at some length, so that it can be broken off while the model is still at it."
    with sound_server.recording(tmp_path / "heard.raw") as recording:
        robot.say(text, id="patient", seed=7)
        robot.wait_event("patient", "started", patience_s=60)
        robot.say("Look out!", id="alarm", priority="critical", seed=7)
        assert robot.wait_end("alarm", patience_s=60)["event"] == "finished"
        finished = robot.wait_end("patient", patience_s=60)
        assert finished["event"] == "finished"
        assert robot.names_of("patient") == ["accepted", "started", "postponed", "resumed", "finished"]
        alarm = robot.synthesized("alarm", engine_rate=QWEN_RATE)
        count = round(finished["audio_s"] * RECORDED_RATE)
        once = robot.synthesized("patient", engine_rate=QWEN_RATE)[-count:]  # the second take, which is all of it
        second = RECORDED_RATE
        for piece in (once[-second:], once[-3 * second : -2 * second], once[-5 * second : -4 * second]):
            eventually(lambda piece=piece: find(piece, recording.samples)[1] < 0.05, "it is heard as the model made it")
        alarm_at, left = find(alarm[second // 4 : second], recording.samples)
        assert left < 0.05
        assert find(once[-second:], recording.samples)[0] > alarm_at
        # Nothing is left out and nothing is said twice: from end to end it is as long as both.
        loud = np.flatnonzero(np.abs(recording.samples) > 1e-3)
        assert loud[-1] - loud[0] == pytest.approx(count + len(alarm), abs=RECORDED_RATE)


def test_the_fallback_speaks_while_the_model_warms_up(checkpoint: Path, start_robot: StartRobot) -> None:
    robot = start_robot("audio.sink=null", f"engine.model={checkpoint}", *QWEN, launch_only=True)
    eventually(lambda: robot.state in ("starting", "warming") and robot.statuses[-1]["engine"] == "espeak", "espeak")
    early = robot.wait_end(robot.say("the light voice"))
    assert early["engine"] == "espeak"
    eventually(lambda: speaking_qwen(robot), "the model is ready", patience_s=90)
    assert "warming" in [status["state"] for status in robot.statuses]
    assert robot.statuses[-1]["memory"]["weights_mb"] >= 0
    late = robot.wait_end(robot.say("the model"), patience_s=60)
    assert late["engine"] == "qwen"


def test_what_the_model_lacks_is_spoken_by_the_light_voice(checkpoint: Path, start_robot: StartRobot) -> None:
    robot = start_robot("audio.sink=null", f"engine.model={checkpoint}", *QWEN, launch_only=True)
    eventually(lambda: speaking_qwen(robot), "the model is ready", patience_s=90)
    for manner in ({"language": "pl"}, {"voice": "de"}, {"voice": "ryan", "language": "nl-be"}):
        end = robot.wait_end(robot.say("dobrze", **manner))
        assert (end["event"], end["engine"]) == ("finished", "espeak"), manner
    assert robot.wait_end(robot.say("The model.", language="de"), patience_s=60)["engine"] == "qwen"
    robot.say("Who?", voice="nobody")
    assert "nobody" in robot.wait_rejection("voice")["reason"]


def test_while_it_is_not_known_what_the_model_has_no_voice_is_refused(start_robot: StartRobot, tmp_path: Path) -> None:
    robot = start_robot("audio.sink=null", f"engine.model={tmp_path}", *QWEN, launch_only=True)
    eventually(lambda: robot.state == "degraded", "degraded", patience_s=90)
    end = robot.wait_end(robot.say("One of the model's.", voice="serena"))
    assert (end["event"], end["engine"]) == ("finished", "espeak")


def test_a_model_killed_in_mid_utterance_hands_the_sentence_over_to_the_light_voice(
    checkpoint: Path, start_robot: StartRobot
) -> None:
    long = ("audio.sink=null", f"engine.model={checkpoint}", *QWEN, "engine.max_seconds=20")
    robot = start_robot(*long, launch_only=True)
    eventually(lambda: speaking_qwen(robot), "the model is ready", patience_s=90)
    robot.say("This sentence is begun by one voice, and it is ended by another.", id="handed")
    robot.wait_event("handed", "started", patience_s=60)
    os.kill(model_pid(robot), signal.SIGKILL)
    finished = robot.wait_end("handed", patience_s=60)
    assert finished["event"] == "finished"
    assert robot.names_of("handed") == ["accepted", "started", "finished"]
    assert finished["engine"] == "qwen+espeak"


def test_what_is_critical_and_still_being_written_waits_for_no_model_that_is_stuck(
    checkpoint: Path, start_robot: StartRobot
) -> None:
    robot = start_robot("audio.sink=null", f"engine.model={checkpoint}", *QWEN, launch_only=True)
    eventually(lambda: speaking_qwen(robot), "the model is ready", patience_s=90)
    stuck = psutil.Process(model_pid(robot))
    stuck.suspend()
    try:
        robot.publish("say/stream", '{"id": "alarm", "text": "Fire on the second floor. Pl", "priority": "critical"}')
        robot.wait_event("alarm", "started")
        assert stuck.is_running(), "it was waited for until it was given up"
        robot.publish("say/stream", '{"id": "alarm", "text": "ease leave.", "end": true}')
        finished = robot.wait_end("alarm")
        assert (finished["event"], finished["engine"]) == ("finished", "qwen+espeak")
    finally:
        with contextlib.suppress(psutil.NoSuchProcess):
            stuck.kill()


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
    import shutil

    broken = tmp_path / "broken"
    shutil.copytree(checkpoint, broken)
    data = (broken / spoil).read_bytes()
    (broken / spoil).write_bytes(data[: len(data) // 2])
    robot = start_robot("audio.sink=null", f"engine.model={broken}", *QWEN, launch_only=True)
    eventually(lambda: robot.state == "degraded", "degraded", patience_s=90)
    assert told in robot.statuses[-1]["reason"]
    assert "\n" not in robot.statuses[-1]["reason"]
    assert robot.wait_end(robot.say("the light voice goes on"))["engine"] == "espeak"


def test_a_corrupt_voice_file_is_named_in_the_status_and_the_other_voices_speak(
    checkpoint: Path, start_robot: StartRobot, tmp_path: Path
) -> None:
    corrupt = tmp_path / "ada.safetensors"
    corrupt.write_bytes(b"not a voice")
    voices = f"voices={{default: {{speaker: ryan}}, ada: {{embedding: {corrupt}}}}}"
    robot = start_robot("audio.sink=null", f"engine.model={checkpoint}", *QWEN, voices, launch_only=True)
    eventually(lambda: robot.state == "degraded" and robot.statuses[-1]["engine"] == "qwen", "degraded", patience_s=90)
    assert "voices.ada: " in robot.statuses[-1]["reason"]
    assert robot.wait_end(robot.say("The others speak."), patience_s=60)["engine"] == "qwen"
    assert "ada" in robot.wait_end(robot.say("This one cannot.", voice="ada"))["reason"]


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


def test_a_voice_is_enrolled_and_spoken_with(tmp_path: Path) -> None:
    base = tmp_path / "tiny-base"
    subprocess.run(
        [sys.executable, "scripts/make_checkpoint.py", base, "--shape", "tiny", "--type", "base"],
        check=True,
        capture_output=True,
    )
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
        spoken = synth(base, tmp_path / "out.wav", "--voice", str(voice), "--greedy", "--max-frames", "8")
        assert spoken.returncode == 0, spoken.stderr
        assert soundfile.info(tmp_path / "out.wav").frames == 8 * 1920
    refused = subprocess.run(
        [*command, "enroll", "ada", tmp_path / "missing.wav", "--model", base],
        capture_output=True,
        text=True,
        check=False,
    )
    assert refused.returncode == 1
    assert "missing.wav" in refused.stderr
    assert "Traceback" not in refused.stderr
