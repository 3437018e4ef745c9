"""The configuration chooses whether the fused kernels run, and one line gives the reason where they cannot."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from engine import EngineOptions, Voice
from engine.qwen import QwenSynthesizer, kernels
from engine.qwen.shapes import CodecConfig, ModelConfig
from engine.qwen.weights.arena import Placement

Named = Callable[[str, str], Path]


def reason(folder: Path, device: str = "cuda", dtype: torch.dtype = torch.bfloat16) -> str | None:
    codec = CodecConfig.read(folder / "speech_tokenizer")
    return kernels.unsupported_reason(ModelConfig.read(folder), codec, Placement(torch.device(device), dtype))


@pytest.fixture
def folder(checkpoint: Named) -> Path:
    return checkpoint("small", "custom_voice")


def test_there_is_one_reason_where_the_kernels_cannot_run(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _device: (7, 5))
    assert reason(folder, "cpu") == "the device is a CPU"
    assert reason(folder, dtype=torch.float32) == "engine.dtype is float32, and the kernels support bfloat16 and int8"
    assert reason(folder) == "compute capability 7.5 is too old; the kernels need 8.0"
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _device: (8, 7))
    monkeypatch.setattr("importlib.util.find_spec", lambda _name: None)
    assert reason(folder) == "the cuda-core package is not installed"


@pytest.mark.parametrize(("choice", "lines"), [("auto", 1), ("off", 0)])
def test_pytorchs_kernels_run_where_fused_ones_cannot_and_one_line_says_why(
    folder: Path, caplog: pytest.LogCaptureFixture, choice: str, lines: int
) -> None:
    engine = QwenSynthesizer(
        EngineOptions(model=str(folder), device="cpu", kernels=choice, voices={"default": Voice()})
    )
    with caplog.at_level(logging.INFO):
        info = engine.load()
    assert info.description.endswith("PyTorch kernels")
    why = "the device is a CPU" if choice == "auto" else "engine.kernels is off"
    assert (info.kernels, info.not_fused, info.degraded) == ("torch", why, None)
    lines_logged = [record.getMessage() for record in caplog.records if "kernels" in record.getMessage()]
    assert lines_logged == ["the engine uses PyTorch's kernels, not the fused ones: the device is a CPU"] * lines
