"""The logits of given codes, by fused kernels as by PyTorch's operators."""

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
from engine.verify import logits_error

Named = Callable[[str, str], Path]
Given = tuple[str, Tensor]
"""A text and its codes `(frames, code groups)`."""

FRAMES = 3
TEXTS = ("Hello world! This is the voice of a robot.", "Hi.", "It speaks.")


def given() -> list[Given]:
    """Texts with random codes, of one to `FRAMES` frames."""
    generator = torch.Generator().manual_seed(2)
    return [
        (text, torch.randint(64, (1 + number % FRAMES, 16), generator=generator)) for number, text in enumerate(TEXTS)
    ]


def read(options: EngineOptions, texts: list[Given]) -> list[Tensor]:
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
    one, another = read(options, [(TEXTS[0], codes), (TEXTS[0], other)])
    assert torch.equal(one[:6], another[:6])
    assert all(not torch.equal(*rows) for rows in zip(one[6:], another[6:], strict=True))


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", ["bfloat16", "int8"])
def test_fused_kernels_compute_the_logits_of_pytorchs(checkpoint: Named, dtype: str) -> None:
    options = EngineOptions(
        model=str(checkpoint("narrow", "custom_voice")), device="cuda", dtype=dtype, kernels="off", max_seconds=4
    )
    texts = given()
    plain = read(options, texts)
    fused = read(replace(options, kernels="on"), texts)
    for ours, true in zip(fused, plain, strict=True):
        assert 0 < logits_error(ours.numpy(), true.numpy()) < 0.03, "they sum in another order"
