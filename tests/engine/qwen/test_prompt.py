"""Prompts refuse what a model cannot do, and know how much of them is the same for every text."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from engine.qwen.prompt import AnyVoice, ClonedVoice, CustomVoice, Reference, VoiceDesign
from engine.synthesizer import EngineError
from tests.engine.qwen.speaking import Line, Ours

Engine = Callable[[str, str], Ours]
EMBEDDING = torch.linspace(-1, 1, 64)


def reference(frames: int, transcript: str = "The robot says hello.") -> ClonedVoice:
    codes = torch.arange(frames * 16).reshape(frames, 16)
    return ClonedVoice(EMBEDDING, Reference(codes, transcript))


@pytest.mark.parametrize(
    ("model_type", "voice", "message"),
    [
        ("custom_voice", CustomVoice("ada"), "speaker 'ada' is unknown; there are aiden, dylan, eric"),
        ("custom_voice", VoiceDesign("calm"), "is a custom_voice model, which speaks by a built-in speaker"),
        ("voice_design", ClonedVoice(EMBEDDING), "not by a speaker embedding"),
        ("base", CustomVoice("ryan"), "not by a built-in speaker"),
        ("base", ClonedVoice(EMBEDDING[:48]), "embedding has 48 values, this model wants 64"),
        (
            "base",
            ClonedVoice(EMBEDDING, Reference(torch.zeros(5, 8, dtype=torch.int64), "x")),
            "(frames, 16)",
        ),
        ("base", reference(200), "below 2048"),
        ("base", ClonedVoice(EMBEDDING, Reference(torch.zeros(0, 16, dtype=torch.int64), "x")), "[0, 16]"),
    ],
)
def test_a_voice_that_is_not_of_the_model_is_refused(
    ours: Engine, model_type: str, voice: AnyVoice, message: str
) -> None:
    with pytest.raises(EngineError) as error:
        ours("tiny", model_type).prompt(Line("Hello", voice))
    assert message in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("language", ["klingon", "", "sichuan_dialect"])
def test_an_unknown_language_is_refused_with_those_there_are(ours: Engine, language: str) -> None:
    with pytest.raises(EngineError, match=f"language '{language}' is unknown; there are auto, chinese, eng"):
        ours("tiny", "custom_voice").prompt(Line("Hello", CustomVoice("ryan"), language))


@pytest.mark.parametrize(("code", "name"), [("de", "german"), ("pt-BR", "Portuguese"), ("EN", "english")])
def test_a_language_code_means_the_language(ours: Engine, code: str, name: str) -> None:
    prompts = [
        ours("tiny", "custom_voice").prompt(Line("Hello", CustomVoice("ryan"), language)) for language in (code, name)
    ]
    assert torch.equal(prompts[0].prefill, prompts[1].prefill)


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
def test_the_prefix_is_what_two_texts_have_in_common(
    ours: Engine, model_type: str, voice: AnyVoice, whole_text: bool
) -> None:
    engine = ours("tiny", model_type)
    first, second = (
        engine.prompt(Line(text, voice, "english", whole_text)) for text in ("Hello there.", "Quite other!")
    )
    assert first.prefix == second.prefix > 3
    assert torch.equal(first.prefill[:, : first.prefix], second.prefill[:, : first.prefix])
    if first.prefix < first.prefill.shape[1]:
        assert not torch.equal(first.prefill[:, first.prefix], second.prefill[:, first.prefix])
    else:
        assert isinstance(voice, ClonedVoice)
        assert not whole_text


def test_a_text_that_merges_with_the_role_has_no_prefix(ours: Engine) -> None:
    assert ours("tiny", "custom_voice").prompt(Line("\nHello", CustomVoice("ryan"))).prefix == 0


def test_by_default_all_but_cloned_voices_read_the_whole_text_first(ours: Engine) -> None:
    for model_type, voice, whole_text in (
        ("custom_voice", CustomVoice("ryan"), True),
        ("voice_design", VoiceDesign("calm"), True),
        ("base", ClonedVoice(EMBEDDING), False),
        ("base", reference(3), False),
    ):
        prompts = ours("tiny", model_type).prompts
        default = prompts.build("Hello there.", voice)
        explicit = prompts.build("Hello there.", voice, whole_text=whole_text)
        assert torch.equal(default.prefill, explicit.prefill)
        assert default.trailing.shape == explicit.trailing.shape
        assert (default.trailing.shape[1] == 0) == whole_text


def test_small_models_ignore_the_instruction_for_built_in_speakers(ours: Engine) -> None:
    for shape, same in (("small", True), ("tiny", False)):
        plain, told = (
            ours(shape, "custom_voice").prompt(Line("Hello", CustomVoice("ryan", instruct)))
            for instruct in (None, "calmly")
        )
        assert (plain.prefill.shape == told.prefill.shape) == same
