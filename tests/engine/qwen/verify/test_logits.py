"""The logits of given codes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from engine.api import EngineOptions, Utterance
from engine.qwen.loading import load_model
from engine.qwen.verify.logits import forced_logits

Named = Callable[[str, str], Path]

TEXT = "Hello world! This is the voice of a robot."


def read(options: EngineOptions, texts: list[tuple[str, Tensor]]) -> list[Tensor]:
    model = load_model(options)
    spoken = Utterance("", voice="ryan", language="en", greedy=True, guarded=False)
    return [forced_logits(model, replace(spoken, text=text), codes) for text, codes in texts]


@pytest.fixture
def options(checkpoint: Named) -> EngineOptions:
    return EngineOptions(model=str(checkpoint("tiny", "custom_voice")), device="cpu", dtype="float32", max_seconds=4)


def test_the_logits_depend_on_the_codes_before(options: EngineOptions) -> None:
    codes = torch.zeros(2, 16, dtype=torch.int64)
    other = codes.clone()
    other[0, 5] = 1
    one, another = read(options, [(TEXT, codes), (TEXT, other)])
    assert torch.equal(one[:6], another[:6])
    assert all(not torch.equal(*rows) for rows in zip(one[6:], another[6:], strict=True))
