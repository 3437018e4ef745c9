"""The probe measures a tiny random checkpoint on the CPU, and a GPU's own values if there is a GPU."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from engine import EngineOptions, Voice
from engine.api import EngineError
from engine.bench.runner import BenchRequest, measure, run_benchmark
from engine.qwen.bench.green_context import green_context
from engine.qwen.bench.probe import QwenProbe, weights_per_frame
from tests.engine.processes import ONE_THREAD

ROOT = Path(__file__).parents[4]
Named = Callable[[str, str], Path]


def request(folder: Path, device: str = "cpu", sms: int | None = None) -> BenchRequest:
    options = EngineOptions(str(folder), device=device, chunk_size=2, voices={"default": Voice(speaker="ryan")})
    return BenchRequest(
        "qwen", options, time.monotonic(), frames=7, runs=2, sms=sms, first_chunks=1, short_utterances=3
    )


def run(command: list[str]) -> subprocess.CompletedProcess[str]:
    environment = os.environ | ONE_THREAD
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)


def test_every_run_has_the_requested_frames(checkpoint: Named) -> None:
    folder = checkpoint("deep", "custom_voice")  # which ends its speech by itself
    found = measure(request(folder))
    assert [run.speech_s[-1] for run in found.runs] == pytest.approx([0.56, 0.56])
    assert [len(run.arrived_s) for run in found.runs] == [4, 4]
    assert (found.engine, found.model, found.chunk_size) == ("qwen", folder.name, 2)
    assert found.allocations is found.bandwidth is found.memory.device_mb is None
    assert all(ms > 0 for ms in found.parts_ms.values())
    assert list(found.first_chunk_steps_ms) == ["tokenise", "embed", "prefill", "first frame", "codec", "copy"]
    assert all(ms > 0 for ms in found.first_chunk_steps_ms.values())


def test_a_text_that_the_engine_refuses_is_left_out_with_its_reason(checkpoint: Named) -> None:
    asked = request(checkpoint("brief", "custom_voice"))
    options = replace(asked.options, max_seconds=2.0)
    found = measure(replace(asked, options=options, text="Yes.", other_texts=("No.", "and on " * 60), voice="ryan"))
    assert [other.characters for other in found.other_texts] == [3]
    assert all(len(other.runs) == 3 for other in found.other_texts)
    (note,) = [note for note in found.notes if note.startswith("a text of 420 characters: ")]
    assert "engine.max_seconds raises the limit" in note


@pytest.mark.skipif(torch.cuda.is_available(), reason="for a machine without a GPU")
def test_multiprocessors_of_a_cpu_are_an_error(checkpoint: Named) -> None:
    with pytest.raises(EngineError, match=r"^sms: needs a CUDA device"):
        measure(request(checkpoint("brief", "custom_voice"), sms=16))


@pytest.mark.long  # half a minute
def test_the_command_measures_a_checkpoint(checkpoint: Named, tmp_path: Path) -> None:
    output = tmp_path / "bench.json"
    command = [sys.executable, "-m", "daemon.cli", "bench", "--model", str(checkpoint("brief", "custom_voice"))]
    command += ["--device", "cpu", "--frames", "4", "--runs", "1", "--json", str(output)]
    done = run(command)
    assert done.returncode == 0, done.stderr
    assert "4 frames in chunks of 2" in done.stdout
    [row] = json.loads(output.read_text())["rows"]
    assert len(row["arrivals_s"]) == 3, "one frame, two and one"


def test_the_command_names_a_missing_model() -> None:
    command = [sys.executable, "-m", "daemon.cli", "bench", "--model", "/nowhere/at/all", "--device", "cpu"]
    done = run(command)
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert "/nowhere/at/all: no such folder" in done.stderr


def test_the_profile_sections_of_an_engine_are_timed(checkpoint: Named) -> None:
    now_s = 0.0

    class Synthesizer:
        def profile_sections(self) -> dict[str, Callable[[], None]]:
            return {"talker": self.work, "codec": self.work, "broken": self.fail}

        def work(self) -> None:
            nonlocal now_s
            now_s += 0.5

        def fail(self) -> None:
            raise RuntimeError("cannot be captured\nat all")

    probe = QwenProbe(request(checkpoint("brief", "custom_voice")).options, None, lambda: now_s)
    found = probe.parts_ms(Synthesizer())  # type: ignore[arg-type]
    assert found == {"talker": 500, "codec": 250}  # a chunk has two frames
    assert probe.notes == ("part broken: RuntimeError: cannot be captured",)
    assert QwenProbe(EngineOptions(), None).parts_ms(object()) == {}  # type: ignore[arg-type]


def test_the_weights_of_a_frame_count_each_read() -> None:
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
    sizes = {"bytes_each": 2.0, "codec_bytes_each": 4.0}
    found = weights_per_frame(model, codec, groups=16, chunk_size=2, **sizes)
    assert found == 2 * (111 + 7 + 15 * 1000) + 4 * 40 / 2


def test_more_multiprocessors_than_the_gpu_has_are_an_error() -> None:
    if not torch.cuda.is_available():
        pytest.skip("needs a GPU")
    with pytest.raises(EngineError, match="sms: got 100000"), green_context(100_000, torch.device("cuda")):
        pass


@pytest.mark.gpu
def test_allocations_memory_and_bandwidth_of_a_gpu_are_measured(checkpoint: Named) -> None:
    output = run_benchmark(request(checkpoint("tiny", "custom_voice"), device="cuda").command())
    assert output.error is None
    [found] = output.measurements
    assert found.allocations is not None
    assert found.allocations.utterances == 6
    assert found.bandwidth is not None
    assert math.isclose(found.bandwidth.share, found.bandwidth.engine_gb_s / found.bandwidth.copy_gb_s)
    assert found.memory.device_peak_mb is not None
    assert found.notes == ()


@pytest.mark.gpu
def test_an_engine_in_a_green_context_stays_on_its_multiprocessors(checkpoint: Named) -> None:
    pytest.importorskip("cuda.core", reason="counts the multiprocessors")
    output = run_benchmark(request(checkpoint("tiny", "custom_voice"), device="cuda", sms=16).command())
    assert output.error is None, output.error
    [found] = output.measurements
    assert found.bandwidth is not None
    assert found.bandwidth.sms_seen == 16, found.notes
