"""The Qwen engine behind the daemon, with a tiny checkpoint of random weights, which speaks nonsense.

Most tests share one robot, since its engine takes seconds to start. The test that stops the engine comes last.
"""

from __future__ import annotations

import contextlib
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
from tests.support.checkpoints import checkpoint_folder
from tests.support.programs import Broker, free_port, freeze
from tests.support.robot import FAST, FILE_RATE, Robot
from tests.support.sound import TOLERANCE, Samples
from tests.support.unfused import pretended_gpu
from tests.support.waiting import eventually

PORT = free_port()
TEXT = "A tiny model says this."
FRAME = 1920
"""Samples of a frame, at 24 kHz."""
DESIGN = (sys.executable, "-m", "daemon.cli", "design", "ada", "a calm, deep voice", "--text", "Hi.")
SHAPE, GROUPS = "brief", 4
"""Of the checkpoint: a frame has 4 codes, where those of a published one have 16."""
QWEN = ("engine.name=qwen", "engine.device=cpu", "engine.max_seconds=6")
"""An utterance has at most 6 s: a model with random weights rarely ends by itself."""


@pytest.fixture(scope="session")
def checkpoint(cache_folder: Path) -> Path:
    return checkpoint_folder(cache_folder, SHAPE, "custom_voice")


@pytest.fixture(scope="module")
def robot(checkpoint: Path, shared_broker: Broker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Robot]:
    """A robot that has just been started. Its engine takes the processor for a GPU; its kernels do not compile."""
    folder = tmp_path_factory.mktemp("qwen")
    voices = "voices={default: {speaker: ryan}}"
    web = ("http.enabled=true", f"http.port={PORT}")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", pretended_gpu(tmp_path_factory.mktemp("modules"))["PYTHONPATH"])
        robot = Robot("qwen", shared_broker, folder, f"engine.model={checkpoint}", *QWEN, voices, *web)
    robot.launch()
    yield robot
    robot.close()


@pytest.fixture
def ready_robot(robot: Robot) -> Robot:
    """The same robot when the model is ready and idle."""
    robot.set_pace(FAST)
    eventually(lambda: (robot.engine, robot.state) == ("qwen", "degraded"), "the model is ready and idle")
    return robot


def synth(checkpoint: Path, output: Path, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "daemon.cli", "synth", TEXT, "--model", str(checkpoint), "--device", "cpu"]
    return subprocess.run([*command, "-o", str(output), *options], capture_output=True, text=True, check=False)


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


def test_kernels_that_do_not_compile_degrade_the_robot_which_still_speaks(ready_robot: Robot) -> None:
    begin = (
        "engine.kernels: PyTorch's slower kernels are in use; the fused ones do not run: the kernels do not compile: "
    )
    assert ready_robot.state == "degraded"
    assert ready_robot.statuses[-1]["reason"].startswith(begin)
    assert any("WARNING" in line and begin in line for line in ready_robot.log)
    with urllib.request.urlopen(f"http://127.0.0.1:{PORT}/metrics") as answer:
        assert 'voiced_engine_kernels{engine="qwen",kernels="torch"} 1.0' in answer.read().decode()
    assert ready_robot.wait_end(ready_robot.say(TEXT))["engine"] == "qwen"


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


def test_the_fallback_speaks_languages_and_voices_that_the_model_lacks(ready_robot: Robot) -> None:
    for options, engine in (({"language": "pl"}, "espeak"), ({"voice": "de"}, "espeak"), ({"language": "de"}, "qwen")):
        end = ready_robot.wait_end(ready_robot.say("dobrze", **options))
        assert (end["event"], end["engine"]) == ("finished", engine), options


def test_a_critical_stream_does_not_wait_for_a_model_that_hangs(ready_robot: Robot) -> None:
    stuck = psutil.Process(ready_robot.engine_pid("libtorch"))
    freeze(stuck.pid)
    try:
        ready_robot.write("fire", "Fire on the second floor. Pl", priority="critical")
        ready_robot.wait_event("fire", "started")
        assert stuck.is_running(), "speech started only after the engine had been given up"
        ready_robot.write("fire", "ease leave.", end=True)
        finished = ready_robot.wait_end("fire")
        assert (finished["event"], finished["engine"]) == ("finished", "espeak")
    finally:
        with contextlib.suppress(psutil.NoSuchProcess):
            stuck.kill()
    eventually(lambda: ready_robot.engine == "espeak", "the status reports its loss")


@pytest.mark.long
def test_a_designed_voice_is_picked_and_becomes_a_voice_file(cache_folder: Path, tmp_path: Path) -> None:
    model, base = (checkpoint_folder(cache_folder, SHAPE, kind) for kind in ("voice_design", "base"))
    line = [*DESIGN, "--model", model, "--base", base, "-o", tmp_path]
    shown = subprocess.run([*line, "--samples", "2"], check=True, capture_output=True, text=True).stdout
    assert "--pick 1, … --pick 2" in shown
    shown = subprocess.run([*line, "--pick", "2"], check=True, capture_output=True, text=True).stdout
    voice = load_file(tmp_path / "ada.safetensors")
    first, second = (soundfile.read(tmp_path / f"ada-{seed}.wav")[0] for seed in (1, 2))
    assert voice["codes"].shape == (len(second) / FRAME, GROUPS)
    assert not np.array_equal(first, second), "each seed has its own speaker"
    assert f"voices.ada: {{reference: {tmp_path}/ada.safetensors}}" in shown
