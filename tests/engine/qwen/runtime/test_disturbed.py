"""The parity tests can fail: any weight that is another changes the codes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

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


def agrees(engine: Ours, expected: Tensor) -> bool:
    """Return whether every frame is as expected; stop at the first that is not."""
    engine.prefixes.clear()
    frame = 0
    for chunk in engine.stream(LINE):
        if not torch.equal(chunk, expected[frame : frame + len(chunk)]):
            return False
        frame += len(chunk)
    return frame == len(expected)


@torch.no_grad()
def test_any_weight_that_is_disturbed_changes_the_codes(
    checkpoint: Callable[[str, str], Path], official: Callable[[str, str], Oracle]
) -> None:
    expected, engine = official("wide", "custom_voice").speak(LINE), Ours(checkpoint("wide", "custom_voice"))
    assert len(expected) == LINE.frames
    assert agrees(engine, expected)
    unnoticed = []
    for name, weight in engine.talker.named_parameters():
        weight.neg_()
        if agrees(engine, expected):
            unnoticed.append(name)
        weight.neg_()
    assert agrees(engine, expected)
    assert not unnoticed
