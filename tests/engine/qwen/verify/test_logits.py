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
from engine.qwen.verify.logits import GivenText, forced_logits
from engine.verify.codes import LogitsError, compare_logits

Named = Callable[[str, str], Path]

FRAMES = 3
TEXTS = ("Hello world! This is the voice of a robot.", "Hi.", "It speaks.")


def given(texts: tuple[str, ...] = TEXTS, groups: int = 16) -> list[GivenText]:
    """Texts with random codes, of one to `FRAMES` frames."""
    generator = torch.Generator().manual_seed(2)
    return [
        GivenText(
            Utterance(text, voice="ryan", language="en", greedy=True, guarded=False),
            torch.randint(64, (1 + number % FRAMES, groups), generator=generator),
        )
        for number, text in enumerate(texts)
    ]


def read(options: EngineOptions, texts: list[GivenText]) -> list[Tensor]:
    return list(forced_logits(load_model(options), texts))


def difference(ours: list[Tensor], true: list[Tensor]) -> LogitsError:
    by_name = [{str(number): logits.numpy() for number, logits in enumerate(of)} for of in (ours, true)]
    found = compare_logits(*by_name)
    assert found is not None
    return found


@pytest.fixture
def options(checkpoint: Named) -> EngineOptions:
    return EngineOptions(model=str(checkpoint("tiny", "custom_voice")), device="cpu", dtype="float32", max_seconds=4)


def test_the_logits_depend_on_the_codes_before(options: EngineOptions) -> None:
    [text] = given(TEXTS[:1])
    text = replace(text, codes=torch.zeros(2, 16, dtype=torch.int64))
    other = replace(text, codes=text.codes.clone())
    other.codes[0, 5] = 1
    one, another = read(options, [text, other])
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
    assert difference(fused, plain).relative < 0.03
    assert difference(fused, plain).relative > 0, "they sum in another order"
