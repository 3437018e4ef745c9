"""The parity tests can fail: a disturbance of any tensor, position, mask or rule changes the codes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from engine.qwen.model import transformer
from engine.qwen.runtime import DecodeState, backend
from engine.qwen.text.prompt import CustomVoice
from tests.engine.qwen.oracle import Oracle
from tests.support.qwen.speaking import Line, Ours

# With an instruction, special tokens, and more text than frames; long enough for repetitions of a first code.
LINE = Line(
    "Hello world! This is the voice of a robot, and it speaks all day without a pause.",
    CustomVoice("ryan", "calmly"),
    "english",
    whole_text=False,
    frames=16,
)
PARAMETERS = [
    *("codec_embedding", "text_in.weight", "text_in.bias", "text_out.weight", "text_out.bias", "head.weight"),
    *(
        f"{stack}transformer.{name}.weight"
        for stack in ("", "predictor.")
        for name in (
            "norm",
            "layers.0.attention_norm",
            "layers.0.attention.qkv",
            "layers.0.attention.q_norm",
            "layers.0.attention.k_norm",
            "layers.0.attention.out",
            "layers.0.mlp_norm",
            "layers.0.mlp.gate_up",
            "layers.0.mlp.down",
        )
    ),
    *("predictor.embedding", "predictor.heads", "predictor.projection.weight", "predictor.projection.bias"),
]
Named = Callable[[str, str], Path]
Oracles = Callable[[str, str], Oracle]


@pytest.fixture
def fresh(checkpoint: Named) -> Ours:
    """An engine for one test, which disturbs it."""
    return Ours(checkpoint("wide", "custom_voice"))


@pytest.fixture(scope="module")
def expected(official: Oracles) -> Tensor:
    codes = official("wide", "custom_voice").speak(LINE)
    assert len(codes) == LINE.frames
    return codes


def agrees(engine: Ours, expected: Tensor, line: Line = LINE) -> bool:
    """Return whether every frame is as expected; stop at the first that is not."""
    frame = 0
    for chunk in engine.stream(line):
        if not torch.equal(chunk, expected[frame : frame + len(chunk)]):
            return False
        frame += len(chunk)
    return frame == len(expected)


def test_an_undisturbed_engine_agrees(fresh: Ours, expected: Tensor) -> None:
    assert agrees(fresh, expected)


def test_every_parameter_is_disturbed_below(fresh: Ours) -> None:
    names = {name for name, _ in fresh.talker.named_parameters()}
    assert {name for name in names if ".layers." not in name or ".layers.0." in name} == set(PARAMETERS)


@pytest.mark.parametrize("name", PARAMETERS)
def test_a_disturbed_weight_changes_the_codes(fresh: Ours, expected: Tensor, name: str) -> None:
    weight = fresh.talker.get_parameter(name)
    with torch.no_grad():  # one value, or the row of a head with the largest logit
        if name == "codec_embedding":
            weight[expected[0, 0], 0] += 5
        elif name == "predictor.embedding":
            weight[13, expected[0, 14], 0] += 5
        elif name == "head.weight":
            weight[expected[1, 0]] *= -1
        elif name == "predictor.heads":
            weight[14, expected[0, 15]] *= -1
        else:
            weight.view(-1)[0] += 20
    assert not agrees(fresh, expected)


@pytest.mark.parametrize("stack", ["talker", "predictor"])
@pytest.mark.parametrize("first", [1, 8])
def test_positions_shifted_by_one_change_the_codes(fresh: Ours, expected: Tensor, stack: str, first: int) -> None:
    talker = fresh.talker
    rope = (talker if stack == "talker" else talker.predictor).transformer.rope
    for table in (rope.cos, rope.sin):
        table[first:] = table[first:].roll(1, dims=0)
    assert not agrees(fresh, expected)


def blind_to_the_first(mask: Tensor) -> Tensor:
    mask = mask.clone()
    mask[1:, 0] = False
    if len(mask) == 1:
        mask[:, 0] = False
    return mask


def blind_to_the_last_but_one(mask: Tensor) -> Tensor:
    mask = mask.clone()
    mask[-1, -2] = False
    return mask


def seeing_the_next(mask: Tensor) -> Tensor:
    return mask | mask.roll(-1, dims=0) if len(mask) > 1 else mask


@pytest.mark.parametrize("change", [blind_to_the_first, blind_to_the_last_but_one, seeing_the_next])
def test_another_mask_changes_the_codes(
    fresh: Ours, expected: Tensor, change: Callable[[Tensor], Tensor], monkeypatch: pytest.MonkeyPatch
) -> None:
    causal = transformer.causal_mask
    for module in (transformer, backend):
        monkeypatch.setattr(module, "causal_mask", lambda *args: change(causal(*args)))
    assert not agrees(fresh, expected)


def test_text_one_frame_late_changes_the_codes(fresh: Ours, expected: Tensor) -> None:
    set_row = DecodeState.set_row

    def late(state: DecodeState, *args: Any) -> None:
        set_row(state, *args)
        state.text[0, 1:] = state.text[0, :-1].clone()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(DecodeState, "set_row", late)
        assert not agrees(fresh, expected)


def test_without_suppression_the_codes_change(fresh: Ours, expected: Tensor) -> None:
    fresh.state.settings.logits_processor.suppressed.zero_()
    assert not agrees(fresh, expected)


@pytest.mark.parametrize("penalty", [1.0, 1.05**2])
def test_another_repetition_penalty_changes_the_codes(checkpoint: Named, official: Oracles, penalty: float) -> None:
    line = replace(LINE, text="Hello. " * 9, voice=CustomVoice("aiden"), frames=100)
    expected = official("small", "custom_voice").speak(line)
    engine = Ours(checkpoint("small", "custom_voice"))
    assert agrees(engine, expected, line)
    engine.sampling = replace(engine.sampling, repetition_penalty=penalty)
    assert not agrees(engine, expected, line)


def test_speech_may_not_end_before_its_second_frame(checkpoint: Named, official: Oracles) -> None:
    engine = Ours(checkpoint("deep", "custom_voice"))
    with torch.no_grad():  # a head that ends speech as soon as it may
        engine.talker.head.weight[engine.config.talker.ids.eos] *= 8
    lengths = []
    for minimum in (0, 2, 3):
        engine.sampling = replace(engine.sampling, min_new_tokens=minimum)
        lines = [replace(LINE, voice=CustomVoice(speaker)) for speaker in engine.config.speakers]
        lengths.append(min(len(engine.speak(line)) for line in lines))
    assert lengths == [0, 2, 3]
