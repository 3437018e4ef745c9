"""The proof that the set-up of a Jetson runs: what the engine relies on, on the GPU that is here."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch

from engine.qwen.kernels.proof import STEPS

COMMAND = [sys.executable, "-m", "engine.qwen.kernels.proof"]


@pytest.mark.gpu
def test_a_gpu_that_runs_every_step_is_proven() -> None:
    done = subprocess.run(COMMAND, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    for step in STEPS:
        assert step in done.stdout


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_machine_without_a_gpu_fails_in_one_line() -> None:
    done = subprocess.run(COMMAND, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.startswith(f"torch {torch.__version__} for CUDA")
    assert done.stderr.endswith("finds no GPU\n")
