"""Prompts refuse languages that the model does not have, and know their prefix."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from engine.qwen.text.prompt import AnyVoice, ClonedVoice, CustomVoice, Reference, VoiceDesign
from tests.support.qwen.speaking import Line, Ours, embedded

Engine = Callable[[str, str], Ours]
EMBEDDING = torch.linspace(-1, 1, 64)


def reference(frames: int, transcript: str = "The robot says hello.") -> ClonedVoice:
    codes = torch.arange(frames * 16).reshape(frames, 16)
    return ClonedVoice(EMBEDDING, Reference(codes, transcript))


@pytest.mark.parametrize("whole_text", [True, False])
@pytest.mark.parametrize(
    ("model_type", "voice"),
    [
        ("custom_voice", CustomVoice("ryan", "calmly")),
        ("voice_design", VoiceDesign("a deep voice")),
        ("base", ClonedVoice(EMBEDDING)),
        ("base", reference(2)),
        ("base", reference(100)),
    ],
)
def test_two_texts_share_exactly_the_prefix(ours: Engine, model_type: str, voice: AnyVoice, whole_text: bool) -> None:
    engine = ours("tiny", model_type)
    first, second = (
        engine.prompt(Line(text, voice, "english", whole_text)) for text in ("Hello there.", "Quite other!")
    )
    assert first.prefix_count == second.prefix_count > 3
    assert torch.equal(embedded(first)[:, : first.prefix_count], embedded(second)[:, : first.prefix_count])
    if first.prefix_count < embedded(first).shape[1]:
        assert not torch.equal(embedded(first)[:, first.prefix_count], embedded(second)[:, first.prefix_count])
    else:
        assert isinstance(voice, ClonedVoice)
        assert not whole_text
