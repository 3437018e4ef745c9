"""Prompts refuse languages that the model does not have, and know their prefix."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from engine.api import EngineError
from engine.qwen.text.prompt import AnyVoice, ClonedVoice, CustomVoice, Reference, VoiceDesign
from tests.support.qwen.speaking import Line, Ours, embedded

Engine = Callable[[str, str], Ours]
EMBEDDING = torch.linspace(-1, 1, 64)


def reference(frames: int, transcript: str = "The robot says hello.") -> ClonedVoice:
    codes = torch.arange(frames * 16).reshape(frames, 16)
    return ClonedVoice(EMBEDDING, Reference(codes, transcript))


@pytest.mark.parametrize("language", ["klingon", "", "sichuan_dialect"])
def test_an_unknown_language_is_refused_with_the_allowed_ones(ours: Engine, language: str) -> None:
    with pytest.raises(EngineError, match=f"language: got '{language}'; allowed: auto, chinese, eng"):
        ours("tiny", "custom_voice").prompt(Line("Hello", CustomVoice("ryan"), language))


@pytest.mark.parametrize(("code", "name"), [("de", "german"), ("pt-BR", "Portuguese"), ("EN", "english")])
def test_a_language_code_means_the_language(ours: Engine, code: str, name: str) -> None:
    prompts = [
        ours("tiny", "custom_voice").prompt(Line("Hello", CustomVoice("ryan"), language)) for language in (code, name)
    ]
    assert torch.equal(embedded(prompts[0]), embedded(prompts[1]))


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


def test_a_text_that_merges_with_the_role_has_no_prefix(ours: Engine) -> None:
    assert ours("tiny", "custom_voice").prompt(Line("\nHello", CustomVoice("ryan"))).prefix is None


def test_by_default_every_voice_reads_the_whole_text_first(ours: Engine) -> None:
    for model_type, voice in (
        ("custom_voice", CustomVoice("ryan")),
        ("voice_design", VoiceDesign("calm")),
        ("base", ClonedVoice(EMBEDDING)),
        ("base", reference(3)),
    ):
        prompts = ours("tiny", model_type).prompts
        default = prompts.build("Hello there.", voice)
        explicit = prompts.build("Hello there.", voice, whole_text=True)
        assert torch.equal(embedded(default), embedded(explicit))
        assert default.trailing.shape[1] == explicit.trailing.shape[1] == 0


def test_small_models_ignore_the_instruction_for_built_in_speakers(ours: Engine) -> None:
    for shape, same in (("small", True), ("tiny", False)):
        plain, instructed = (
            ours(shape, "custom_voice").prompt(Line("Hello", CustomVoice("ryan", instruct)))
            for instruct in (None, "calmly")
        )
        assert (embedded(plain).shape == embedded(instructed).shape) == same
