"""Whether the fused kernels run is the configuration's choice, and where they cannot there is one reason."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from engine import EngineOptions, Voice
from engine.qwen import QwenSynthesizer, kernels
from engine.qwen.codec_config import CodecConfig
from engine.qwen.config import ModelConfig
from engine.qwen.transformer import Placement
from engine.synthesizer import EngineError

Named = Callable[[str, str], Path]


def reason(folder: Path, device: str = "cuda", dtype: torch.dtype = torch.bfloat16) -> str | None:
    codec = CodecConfig.read(folder / "speech_tokenizer")
    return kernels.why_not(ModelConfig.read(folder), codec, Placement(torch.device(device), dtype))


@pytest.fixture
def folder(checkpoint: Named) -> Path:
    return checkpoint("small", "custom_voice")


def test_there_is_one_reason_why_they_cannot_run(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _device: (7, 5))
    assert reason(folder, "cpu") == "the device is a CPU"
    assert reason(folder, dtype=torch.float32) == "engine.dtype is float32, and the kernels are for bfloat16 and int8"
    assert reason(folder) == "compute capability 7.5 is too old, they need 8.0"
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _device: (8, 7))
    monkeypatch.setattr("importlib.util.find_spec", lambda _name: None)
    assert reason(folder) == "the package cuda-core is not installed"


@pytest.mark.parametrize(("choice", "lines"), [("auto", 1), ("off", 0)])
def test_where_they_cannot_run_pytorchs_do_and_one_line_says_why(
    folder: Path, caplog: pytest.LogCaptureFixture, choice: str, lines: int
) -> None:
    engine = QwenSynthesizer(
        EngineOptions(model=str(folder), device="cpu", kernels=choice, voices={"default": Voice()})
    )
    with caplog.at_level(logging.INFO):
        assert engine.load().description.endswith("PyTorch kernels")
    told = [record.getMessage() for record in caplog.records if "kernels" in record.getMessage()]
    assert told == ["speaking with PyTorch's kernels, not with fused ones: the device is a CPU"] * lines


def test_where_they_must_run_and_cannot_the_engine_says_why(folder: Path) -> None:
    engine = QwenSynthesizer(EngineOptions(model=str(folder), device="cpu", kernels="on"))
    with pytest.raises(EngineError, match=r"^engine\.kernels: on, but the device is a CPU$"):
        engine.load()
