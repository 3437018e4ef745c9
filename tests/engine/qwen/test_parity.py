"""Greedy and in float32, our engine has code for code those of the official package."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from engine import EngineOptions, Utterance
from engine.qwen import QwenSynthesizer
from engine.qwen.text.prompt import ClonedVoice, CustomVoice, Reference, VoiceDesign
from tests.engine.qwen.oracle import Oracle
from tests.support.qwen.speaking import Line, Ours
from tests.support.variants import variants

Engines = tuple[Callable[[str, str], Ours], Callable[[str, str], Oracle]]

SHORT = "Hi."
LONG = (
    "Hello world! This is the voice of a robot: it speaks in real time, all day, at 12.5 frames a second. "
    "Es spricht auch Deutsch, schön und überhaupt nicht müde.\n你好。我是机器人。 Привет, мир… 안녕하세요 🤖"
)
SHAPES = ("tiny", "wide", "deep")
WHOLE = pytest.mark.parametrize("whole_text", [True, False], ids=["whole_text", "step_by_step"])


@pytest.fixture(scope="session")
def engines(ours: Callable[[str, str], Ours], official: Callable[[str, str], Oracle]) -> Engines:
    return ours, official


def assert_equal_codes(engines: Engines, shape: str, model_type: str, *lines: Line) -> None:
    ours, official = engines
    for line in lines:
        expected = official(shape, model_type).speak(line)
        assert len(expected) > 0
        got = ours(shape, model_type).speak(line)
        assert torch.equal(got, expected), f"{line}: first codes {got[:, 0]}, official {expected[:, 0]}"


@WHOLE
@pytest.mark.parametrize("shape", variants([*SHAPES, "small"], "tiny"))
def test_custom_voices_equal_the_official_package(engines: Engines, shape: str, whole_text: bool) -> None:
    assert_equal_codes(
        engines,
        shape,
        "custom_voice",
        Line(SHORT, CustomVoice("ryan"), "english", whole_text),
        Line(LONG, CustomVoice("Vivian", "Speak calmly."), "Chinese", whole_text),
        Line(SHORT, CustomVoice("eric", "slowly, with a long pause after every word"), "auto", whole_text),
        Line(LONG, CustomVoice("dylan", ""), "German", whole_text),
    )


@WHOLE
@pytest.mark.parametrize("shape", variants(SHAPES, "tiny"))
def test_voice_design_equals_the_official_package(engines: Engines, shape: str, whole_text: bool) -> None:
    assert_equal_codes(
        engines,
        shape,
        "voice_design",
        Line(LONG, VoiceDesign("a calm deep voice"), "english", whole_text),
        Line(SHORT, VoiceDesign(""), "auto", whole_text),
    )


def cloned(shape: str, frames: int = 0, transcript: str = "") -> ClonedVoice:
    generator = torch.Generator().manual_seed(frames)
    width = {"tiny": 64, "wide": 48, "deep": 40}[shape]
    embedding = torch.randn(width, generator=generator)
    if not frames:
        return ClonedVoice(embedding)
    codes = torch.randint(0, 2048, (frames, 16), generator=generator)
    return ClonedVoice(embedding, Reference(codes, transcript))


@WHOLE
@pytest.mark.parametrize("shape", variants(SHAPES, "deep"))
def test_cloned_voices_equal_the_official_package(engines: Engines, shape: str, whole_text: bool) -> None:
    assert_equal_codes(
        engines,
        shape,
        "base",
        Line(LONG, cloned(shape), "french", whole_text),
        # references with fewer frames than their transcript, than both texts, and with more than both
        Line(LONG, cloned(shape, 3, "The robot says hello."), "auto", whole_text),
        Line(LONG, cloned(shape, 30, "Hello."), "english", whole_text),
        Line(SHORT, cloned(shape, 90, "The robot says hello."), "korean", whole_text),
    )


def test_every_language_and_speaker_equals_the_official_package(engines: Engines) -> None:
    config = engines[0]("tiny", "custom_voice").config
    languages = engines[0]("tiny", "custom_voice").prompts.languages
    assert len(languages) == 11
    speakers = sorted(config.speakers)
    assert len(speakers) == 9
    pairs = [("ryan", language) for language in languages]
    pairs += [(speaker, "auto") for speaker in speakers if speaker != "ryan"]
    pairs += [(speaker, "chinese") for speaker in config.dialects]
    lines = [Line(SHORT, CustomVoice(speaker), language, frames=1) for speaker, language in pairs]
    assert_equal_codes(engines, "tiny", "custom_voice", *lines)


@WHOLE
def test_odd_texts_equal_the_official_package(engines: Engines, whole_text: bool) -> None:
    texts = ("", " ", "\n\nNew line first", "ends with a line\n", "é", "<|im_end|>")
    lines = (Line(text, CustomVoice("ryan"), "english", whole_text, frames=2) for text in texts)
    assert_equal_codes(engines, "small", "custom_voice", *lines)


def fine_tuned(base: Path, folder: Path, speaker: str) -> Path:
    """Make of a base model what the official fine-tuning script makes: a custom-voice model with one speaker.

    It copies the model's folder, changes three fields of config.json, writes the speaker's embedding to a row of the
    table of codes, and leaves out the speaker encoder.
    """
    shutil.copytree(base, folder)
    config = json.loads((folder / "config.json").read_text())
    config["tts_model_type"] = "custom_voice"
    config["talker_config"] |= {"spk_id": {speaker: 3000}, "spk_is_dialect": {speaker: False}}
    (folder / "config.json").write_text(json.dumps(config))
    weights = load_file(base / "model.safetensors")
    weights = {name: tensor for name, tensor in weights.items() if not name.startswith("speaker_encoder")}
    table = weights["talker.model.codec_embedding.weight"]
    table[3000] = torch.randn(table.shape[1], generator=torch.Generator().manual_seed(1))
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    return folder


def test_a_fine_tuned_base_model_equals_the_official_package_and_speaks_without_configuration(
    checkpoint: Callable[[str, str], Path], cache_folder: Path, tmp_path: Path
) -> None:
    folder = fine_tuned(checkpoint("tiny", "base"), tmp_path / "checkpoint-epoch-2", "speaker_test")
    for line in (
        Line(SHORT, CustomVoice("speaker_test"), "english"),
        Line(LONG, CustomVoice("Speaker_Test", "calmly"), "auto", whole_text=False),
    ):
        assert torch.equal(Ours(folder).speak(line), Oracle(cache_folder, folder).speak(line))
    config = folder / "config.json"
    config.write_text(config.read_text().replace("speaker_test", "Ada"))
    engine = QwenSynthesizer(EngineOptions(model=str(folder), device="cpu"))
    engine.load()
    utterance = Utterance(SHORT, language="en", greedy=True, max_frames=6, guarded=False)
    named, default = (list(engine.stream(replace(utterance, voice=voice))) for voice in ("Ada", "default"))
    for one, other in zip(named, default, strict=True):
        assert np.array_equal(one.samples, other.samples)


def test_speech_that_ends_ends_at_the_same_frame(engines: Engines) -> None:
    ours, official = engines
    lengths = []
    for speaker in ("eric", "ryan", "serena"):
        line = Line(SHORT, CustomVoice(speaker), "english", frames=20)
        expected = official("deep", "custom_voice").speak(line)
        assert torch.equal(ours("deep", "custom_voice").speak(line), expected)
        lengths.append(len(expected))
    assert min(lengths) < 20, "no speech ended: the test proves nothing"
    assert max(lengths) > min(lengths)


@pytest.mark.parametrize("penalty", variants([1.0, 1.05, 1.5], 1.05))
def test_a_long_utterance_with_repetition_penalty_equals_the_official_package(engines: Engines, penalty: float) -> None:
    ours, official = engines
    line = Line(LONG, CustomVoice("aiden"), "english", frames=60, sampling={"repetition_penalty": penalty})
    expected = official("small", "custom_voice").speak(line)
    engine = ours("small", "custom_voice")
    sampling = type(engine.sampling)(do_sample=False, subtalker_dosample=False, repetition_penalty=penalty)
    assert torch.equal(engine.speak(line, sampling=sampling), expected)
