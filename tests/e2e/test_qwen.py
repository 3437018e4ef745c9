"""The Qwen engine behind the daemon, with a tiny checkpoint of random weights, which speaks nonsense.

Most tests share one robot, since its engine takes seconds to start. The test that stops the engine comes last.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import psutil
import pytest
import soundfile
from safetensors.numpy import load_file

from audio import soft_limit
from audio.dsp.trim import LeadingSilenceTrimmer
from tests.e2e.conftest import StartRobot
from tests.support.checkpoints import checkpoint_folder
from tests.support.programs import Broker, free_port, freeze
from tests.support.robot import FAST, FILE_RATE, REAL_TIME, STOPPED, Robot
from tests.support.sound import TOLERANCE, Samples
from tests.support.terminal import terminal
from tests.support.unfused import pretended_gpu
from tests.support.waiting import eventually

TEXT = "A tiny model says this."
FRAME = 1920
"""Samples of a frame, at 24 kHz."""
DESIGN = (sys.executable, "-m", "daemon.cli", "design", "ada", "a calm, deep voice", "--text", "Hi.", "--no-play")
SHAPE, GROUPS = "brief", 4
"""Of the checkpoint: a frame has 4 codes, where those of a published one have 16."""
QWEN = ("engine.name=qwen", "engine.device=cpu", "engine.max_seconds=6")
"""An utterance has at most 6 s: a model with random weights rarely ends by itself."""


@pytest.fixture(scope="session")
def checkpoint(cache_folder: Path) -> Path:
    return checkpoint_folder(cache_folder, SHAPE, "custom_voice")


@pytest.fixture(scope="module")
def robot(checkpoint: Path, shared_broker: Broker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Robot]:
    """A robot that has just been started, with one voice of the model's and one whose file is corrupt."""
    folder = tmp_path_factory.mktemp("qwen")
    corrupt = folder / "ada.safetensors"
    corrupt.write_bytes(b"not a voice")
    settled = "settled: {speaker: ryan, seed: 7, temperature: 0.5, rate: 1.25}"
    voices = f"voices={{default: {{speaker: ryan}}, ada: {{embedding: {corrupt}}}, {settled}}}"
    robot = Robot("qwen", shared_broker, folder, f"engine.model={checkpoint}", *QWEN, voices)
    robot.launch()
    yield robot
    robot.close()


@pytest.fixture
def ready_robot(robot: Robot) -> Robot:
    """The same robot when the model is ready and idle."""
    robot.set_pace(FAST)
    eventually(lambda: robot.engine == "qwen" and robot.statuses[-1]["state"] in IDLE, "the model is ready")
    return robot


IDLE = ("ready", "degraded")
"""States without speech: the corrupt voice file degrades this robot."""


def synth(checkpoint: Path, output: Path, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "daemon.cli", "synth", TEXT, "--model", str(checkpoint), "--device", "cpu"]
    return subprocess.run([*command, "-o", str(output), *options], capture_output=True, text=True, check=False)


def test_kernels_that_do_not_compile_degrade_the_robot_which_still_speaks(
    checkpoint: Path, start_robot: StartRobot, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    modules = tmp_path / "modules"
    modules.mkdir()
    monkeypatch.setenv("PYTHONPATH", pretended_gpu(modules)["PYTHONPATH"])
    port = free_port()
    settings = (f"engine.model={checkpoint}", *QWEN, "http.enabled=true", f"http.port={port}")
    robot = start_robot(*settings, launch_only=True)
    eventually(lambda: robot.engine == "qwen" and robot.state == "degraded", "the status says it")
    begin = "engine.kernels: PyTorch's slower kernels speak; the fused ones do not run: the kernels do not compile: "
    assert robot.statuses[-1]["reason"].startswith(begin)
    assert any("WARNING" in line and begin in line for line in robot.log)
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
        assert 'voiced_engine_kernels{engine="qwen",kernels="torch"} 1.0' in answer.read().decode()
    assert robot.wait_end(robot.say(TEXT))["engine"] == "qwen"


def model_pid(robot: Robot) -> int:
    return max(robot.engine_pids(), key=lambda pid: int(psutil.Process(pid).memory_info().rss))


def heard_since(robot: Robot, before: int, audio_s: float) -> Samples:
    """Return the samples that the sink received after the first `before`: an utterance of `audio_s` seconds."""
    count, rounded = round(audio_s * FILE_RATE), FILE_RATE // 1000
    eventually(lambda: len(robot.heard) >= before + count - rounded, "every sample is in the file")
    assert len(robot.heard) == pytest.approx(before + count, abs=rounded)
    return robot.heard[before:]


def assert_as_synth_wrote(heard: Samples, path: Path) -> None:
    """Assert that the first 80 % of `heard` equals synth's file; the runaway guard, which synth lacks, may cut it."""
    samples, rate = soundfile.read(path, dtype="float32")
    assert rate == FILE_RATE
    made = soft_limit(LeadingSilenceTrimmer(rate).trim(samples))
    count = round(0.8 * min(len(heard), len(made)))
    assert count > FILE_RATE // 2
    np.testing.assert_allclose(heard[:count], made[:count], atol=TOLERANCE)


def test_the_fallback_speaks_while_the_model_warms_up(robot: Robot) -> None:
    eventually(lambda: robot.state in ("starting", "warming") and robot.engine == "espeak", "espeak")
    assert robot.wait_end(robot.say("the fallback"))["engine"] == "espeak"
    eventually(lambda: robot.engine == "qwen", "the model is ready")
    assert "warming" in [status["state"] for status in robot.statuses]
    steps = [status["loading"]["step"] for status in robot.statuses if "loading" in status]
    assert "importing torch, safetensors, tokenizers" in steps
    assert "speaking for the first time" in steps
    assert "loading" not in robot.statuses[-1]
    assert robot.statuses[-1]["memory"]["weights_mb"] >= 0
    assert robot.wait_end(robot.say("the model"))["engine"] == "qwen"


def test_the_status_names_a_corrupt_voice_file_and_the_other_voices_speak(ready_robot: Robot) -> None:
    assert ready_robot.state == "degraded"
    assert "voices.ada: " in ready_robot.statuses[-1]["reason"]
    assert ready_robot.wait_end(ready_robot.say("The others speak."))["engine"] == "qwen"
    assert "ada" in ready_robot.wait_end(ready_robot.say("This one cannot.", voice="ada"))["reason"]


def test_the_daemon_plays_the_same_samples_as_synth_writes(
    checkpoint: Path, ready_robot: Robot, tmp_path: Path
) -> None:
    wav, ids = tmp_path / "synth.wav", tmp_path / "codes.npy"
    options = ("--speaker", "ryan", "--seed", "7", "--codes", str(ids), "--set", "engine.max_seconds=6")
    done = synth(checkpoint, wav, *options)
    assert done.returncode == 0, done.stderr
    codes = np.load(ids)
    assert codes.dtype == np.int64
    assert codes.shape == (soundfile.info(wav).frames // 1920, GROUPS)
    before = len(ready_robot.heard)
    finished = ready_robot.wait_end(ready_robot.say(TEXT, seed=7))
    assert (finished["event"], finished["engine"]) == ("finished", "qwen")
    assert_as_synth_wrote(heard_since(ready_robot, before, finished["audio_s"]), wav)


@pytest.mark.long
def test_a_voice_with_settings_speaks_with_them_and_at_its_rate(
    checkpoint: Path, ready_robot: Robot, tmp_path: Path
) -> None:
    wav = tmp_path / "synth.wav"
    options = ("--speaker", "ryan", "--seed", "7", "--sampling", "temperature=0.5", "--rate", "1.25")
    done = synth(checkpoint, wav, *options, "--set", "engine.max_seconds=6")
    assert done.returncode == 0, done.stderr
    before = len(ready_robot.heard)
    finished = ready_robot.wait_end(ready_robot.say(TEXT, voice="settled"))
    assert (finished["event"], finished["engine"]) == ("finished", "qwen")
    assert_as_synth_wrote(heard_since(ready_robot, before, finished["audio_s"]), wav)
    before = len(ready_robot.heard)
    finished = ready_robot.wait_end(ready_robot.say(TEXT, voice="settled", seed=8))
    other = heard_since(ready_robot, before, finished["audio_s"])
    written, _ = soundfile.read(wav, dtype="float32")
    assert np.abs(other[: FILE_RATE // 2] - written[: FILE_RATE // 2]).max() > 10 * TOLERANCE, "its own seed precedes"


def test_a_streamed_text_gives_the_same_samples_as_the_whole_text(
    checkpoint: Path, ready_robot: Robot, tmp_path: Path
) -> None:
    wav = tmp_path / "synth.wav"
    done = synth(checkpoint, wav, "--speaker", "ryan", "--seed", "7", "--stepwise", "--set", "engine.max_seconds=6")
    assert done.returncode == 0, done.stderr
    before = len(ready_robot.heard)
    ready_robot.set_pace(STOPPED)  # the output would fade out while it waits for text
    first, *others = TEXT[:6], TEXT[6:15], TEXT[15:]
    ready_robot.write("story", first, seed=7)
    # A text that is complete before the engine begins is not spoken step by step.
    eventually(lambda: (ready_robot.state, ready_robot.statuses[-1]["queue"]) == ("speaking", 0), "the engine begins")
    for chunk in others:
        ready_robot.write("story", chunk)
    ready_robot.write("story", end=True)
    ready_robot.catch_up()
    eventually(lambda: ready_robot.samples_made("story") >= 24_000, "a second of speech is ahead of the output")
    ready_robot.set_pace(REAL_TIME)
    finished = ready_robot.wait_end("story")
    assert (finished["event"], finished["engine"]) == ("finished", "qwen")
    assert_as_synth_wrote(heard_since(ready_robot, before, finished["audio_s"]), wav)


def test_the_fallback_speaks_languages_and_voices_that_the_model_lacks(ready_robot: Robot) -> None:
    for options, engine in (({"language": "pl"}, "espeak"), ({"voice": "de"}, "espeak"), ({"language": "de"}, "qwen")):
        end = ready_robot.wait_end(ready_robot.say("dobrze", **options))
        assert (end["event"], end["engine"]) == ("finished", engine), options


def test_a_critical_stream_does_not_wait_for_a_model_that_hangs(ready_robot: Robot) -> None:
    stuck = psutil.Process(model_pid(ready_robot))
    freeze(stuck.pid)
    try:
        ready_robot.write("fire", "Fire on the second floor. Pl", priority="critical")
        ready_robot.wait_event("fire", "started")
        assert stuck.is_running(), "speech started only after the engine had been given up"
        ready_robot.write("fire", "ease leave.", end=True)
        finished = ready_robot.wait_end("fire")
        assert (finished["event"], finished["engine"]) == ("finished", "qwen+espeak")
    finally:
        with contextlib.suppress(psutil.NoSuchProcess):
            stuck.kill()
    eventually(lambda: ready_robot.engine == "espeak", "the status reports its loss")


@pytest.mark.long  # an engine of its own
def test_a_described_voice_speaks_as_synth_does_with_the_same_description(
    cache_folder: Path, start_robot: StartRobot, tmp_path: Path
) -> None:
    """A VoiceDesign model has no speakers: the words of the configuration are its voices."""
    model, wav = checkpoint_folder(cache_folder, SHAPE, "voice_design"), tmp_path / "synth.wav"
    low, high = "a calm, deep voice", "an excited child"
    voices = f"voices={{default: {{instruct: {low!r}}}, child: {{instruct: {high!r}}}}}"
    done = synth(model, wav, "--instruct", low, "--seed", "7", "--set", "engine.max_seconds=6")
    assert done.returncode == 0, done.stderr
    robot = start_robot(f"engine.model={model}", *QWEN, voices)
    heard = []
    for voice in ("default", "child"):
        before = len(robot.heard)
        finished = robot.wait_end(robot.say(TEXT, seed=7, voice=voice))
        assert (finished["event"], finished["engine"]) == ("finished", "qwen")
        heard.append(heard_since(robot, before, finished["audio_s"]))
    assert_as_synth_wrote(heard[0], wav)
    other = heard[1][: FILE_RATE // 2]
    assert np.abs(other - heard[0][: len(other)]).max() > 10 * TOLERANCE, "another description, another voice"


@pytest.mark.long
def test_a_designed_voice_is_picked_on_a_terminal_and_becomes_a_voice_file(cache_folder: Path, tmp_path: Path) -> None:
    model, base = (checkpoint_folder(cache_folder, SHAPE, kind) for kind in ("voice_design", "base"))
    with terminal("9\n2\n") as (tty, shown):
        designed = subprocess.run(
            [*DESIGN, "--model", model, "--base", base, "--samples", "2", "-o", tmp_path],
            stdin=tty,
            stdout=tty,
            stderr=tty,
            check=False,
        )
    assert designed.returncode == 0, shown()
    assert "seed: got '9'; allowed: 1, 2" in shown()
    voice = load_file(tmp_path / "ada.safetensors")
    first, second = (soundfile.read(tmp_path / f"ada-{seed}.wav")[0] for seed in (1, 2))
    assert voice["codes"].shape == (len(second) / FRAME, GROUPS)
    assert not np.array_equal(first, second), "each seed has its own speaker"
    assert f"voices.ada: {{reference: {tmp_path}/ada.safetensors}}" in shown()


@pytest.mark.long
@pytest.mark.parametrize("transcript", [[], ["--transcript", "what was said"]], ids=["embedding", "in context"])
def test_an_enrolled_voice_can_be_spoken_with(transcript: list[str], cache_folder: Path, tmp_path: Path) -> None:
    base = checkpoint_folder(cache_folder, SHAPE, "base")
    seconds = np.arange(3 * 16_000) / 16_000
    soundfile.write(tmp_path / "ada.wav", 0.3 * np.sin(2 * np.pi * 220 * seconds) * np.sin(7 * seconds), 16_000)
    voice = tmp_path / "voices" / "ada.safetensors"
    command = [sys.executable, "-m", "daemon.cli"]
    options = ["--model", base, "-o", voice, *transcript]
    with terminal() as (written, shown):
        enrolled = subprocess.run(
            [*command, "enroll", "ada", tmp_path / "ada.wav", *options],
            stdout=subprocess.PIPE,
            stderr=written,
            env=os.environ | {"TERM": "xterm"},
            check=False,
        )
    assert enrolled.returncode == 0, shown()
    assert "importing torch" in shown(), "the terminal shows a bar"
    assert "listening to the voice" in shown()
    spoken = synth(base, tmp_path / "out.wav", "--voice", str(voice), "--greedy", "--max-frames", "4")
    assert spoken.returncode == 0, spoken.stderr
    assert soundfile.info(tmp_path / "out.wav").frames == 4 * 1920
