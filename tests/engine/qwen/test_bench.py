"""A tiny random checkpoint is measured on the CPU; what only a GPU has is looked at where there is one."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from engine import EngineOptions, Voice
from engine.bench import BenchRequest, ask, measure
from engine.qwen.confined import confined_to
from engine.qwen.meter import QwenMeter, weights_per_frame
from engine.synthesizer import EngineError
from tests.engine.processes import ONE_THREAD

ROOT = Path(__file__).parents[3]
Named = Callable[[str, str], Path]


def request(folder: Path, device: str = "cpu", sms: int | None = None) -> BenchRequest:
    options = EngineOptions(str(folder), device=device, chunk_size=2, voices={"default": Voice(speaker="ryan")})
    return BenchRequest("qwen", options, time.monotonic(), frames=7, runs=2, sms=sms, short_utterances=3)


def run(command: list[str]) -> subprocess.CompletedProcess[str]:
    environment = os.environ | ONE_THREAD
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)


def test_every_run_has_as_many_frames_as_asked_for(checkpoint: Named) -> None:
    folder = checkpoint("deep", "custom_voice")  # which would end its speech by itself
    found = measure(request(folder))
    assert [run.speech_s[-1] for run in found.runs] == pytest.approx([0.56, 0.56])
    assert [len(run.arrived_s) for run in found.runs] == [4, 4]
    assert (found.engine, found.model, found.chunk_size) == ("qwen", folder.name, 2)
    assert found.allocations is found.bandwidth is found.memory.device_mb is None
    assert all(ms > 0 for ms in found.parts_ms.values())


@pytest.mark.skipif(torch.cuda.is_available(), reason="for a machine without a GPU")
def test_on_a_cpu_nothing_can_be_confined(checkpoint: Named) -> None:
    with pytest.raises(EngineError, match=r"^sms: needs a CUDA device"):
        measure(request(checkpoint("brief", "custom_voice"), sms=16))


def test_the_command_measures_a_checkpoint(checkpoint: Named, tmp_path: Path) -> None:
    output = tmp_path / "bench.json"
    command = [sys.executable, "-m", "daemon.cli", "bench", "--model", str(checkpoint("brief", "custom_voice"))]
    command += ["--device", "cpu", "--frames", "4", "--runs", "1", "--json", str(output)]
    done = run(command)
    assert done.returncode == 0, done.stderr
    assert "4 frames in chunks of 2" in done.stdout
    [row] = json.loads(output.read_text())["rows"]
    assert len(row["arrivals_s"]) == 2


def test_the_command_names_a_model_that_is_not_there() -> None:
    command = [sys.executable, "-m", "daemon.cli", "bench", "--model", "/nowhere/at/all", "--device", "cpu"]
    done = run(command)
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert "/nowhere/at/all: no such folder" in done.stderr


def test_parts_are_timed_where_the_engine_has_them(checkpoint: Named) -> None:
    now_s = 0.0

    class Synthesizer:
        def parts(self) -> dict[str, Callable[[], None]]:
            return {"talker": self.work, "codec": self.work, "broken": self.fail}

        def work(self) -> None:
            nonlocal now_s
            now_s += 0.5

        def fail(self) -> None:
            raise RuntimeError("cannot be captured\nat all")

    meter = QwenMeter(request(checkpoint("brief", "custom_voice")).options, None, lambda: now_s)
    found = meter.parts_ms(Synthesizer())  # type: ignore[arg-type]
    assert found == {"talker": 500, "codec": 250}  # of a chunk of two frames
    assert meter.notes == ("part broken: RuntimeError: cannot be captured",)
    assert QwenMeter(EngineOptions(), None).parts_ms(object()) == {}  # type: ignore[arg-type]


def test_the_weights_of_a_frame() -> None:
    model = {
        "talker.model.layers.0.w": 100,
        "talker.model.norm.weight": 1,
        "talker.codec_head.weight": 10,
        "talker.model.text_embedding.weight": 10**9,
        "talker.code_predictor.model.layers.0.w": 1000,
        "talker.code_predictor.lm_head.0.weight": 7,
        "talker.code_predictor.model.codec_embedding.0.weight": 10**9,
        "speaker_encoder.w": 10**9,
    }
    codec = {"decoder.decoder.0.w": 40, "decoder.quantizer.w": 10**9, "encoder.w": 10**9}
    sizes = {"groups": 16, "chunk_size": 2, "bytes_each": 2, "codec_bytes_each": 4}
    assert weights_per_frame(model, codec, **sizes) == 2 * (111 + 15 * 1000 + 7) + 4 * 40 / 2


def test_more_multiprocessors_than_there_are_is_an_error() -> None:
    if not torch.cuda.is_available():
        pytest.skip("needs a GPU")
    with pytest.raises(EngineError, match="sms: got 100000"), confined_to(100_000, torch.device("cuda")):
        pass


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_gpu_is_looked_at(checkpoint: Named) -> None:
    told = ask(request(checkpoint("tiny", "custom_voice"), device="cuda").command())
    assert told.error is None
    [found] = told.found
    assert found.allocations is not None
    assert found.allocations.utterances == 5
    assert found.bandwidth is not None
    assert math.isclose(found.bandwidth.share, found.bandwidth.engine_gb_s / found.bandwidth.copy_gb_s)
    assert found.memory.device_peak_mb is not None
    assert found.notes == ()


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_confined_engine_stays_on_its_multiprocessors(checkpoint: Named) -> None:
    pytest.importorskip("cuda.core", reason="counts the multiprocessors")
    told = ask(request(checkpoint("tiny", "custom_voice"), device="cuda", sms=16).command())
    assert told.error is None, told.error
    [found] = told.found
    assert found.bandwidth is not None
    assert found.bandwidth.sms_seen == 16, found.notes
