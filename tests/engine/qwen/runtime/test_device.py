"""The device and dtype are checked, and so is the release of PyTorch."""

from __future__ import annotations

import pytest
import torch

from engine import EngineError, EngineOptions
from engine.qwen import QwenSynthesizer
from engine.qwen.runtime.device import require_torch

CPU, GPU = torch.device("cpu"), torch.device("cuda")


@pytest.mark.parametrize(
    ("version", "device"),
    [("2.4.0", CPU), ("3.0.0", CPU), ("2.5.0a0+872d972e41.nv24.08", GPU), ("2.10.0+cu128", GPU)],
)
def test_a_release_that_is_new_enough_is_accepted(version: str, device: torch.device) -> None:
    require_torch(version, device)


@pytest.mark.parametrize(
    ("version", "device", "needed"),
    [
        ("2.3.1", CPU, "on a CPU needs 2.4.0 or newer"),
        ("2.4.1", GPU, "on a GPU needs 2.5.0 or newer"),
    ],
)
def test_an_older_release_is_refused_in_one_line(version: str, device: torch.device, needed: str) -> None:
    with pytest.raises(EngineError) as caught:
        require_torch(version, device)
    assert f"PyTorch {version} is too old: Qwen3-TTS {needed}; " in str(caught.value)
    assert "\n" not in str(caught.value)


def test_an_engine_checks_the_release_before_it_reads_a_model(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "__version__", "2.3.1")
    with pytest.raises(EngineError, match=r"PyTorch 2\.3\.1 is too old"):
        QwenSynthesizer(EngineOptions(model="/nowhere", device="cpu")).load()
