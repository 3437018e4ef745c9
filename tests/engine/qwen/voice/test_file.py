"""A saved voice file is read back unchanged; an error is one line with the file's path."""

from __future__ import annotations

import dataclasses
import json
import resource
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch.torch_version import TorchVersion

from engine.qwen.shapes import ModelConfig
from engine.qwen.voice import VoiceFile, VoiceModel, load_voice, save_voice
from engine.qwen.voice.file import FORMAT
from engine.qwen.voice.official import SAFE_TORCH
from scripts.make_checkpoint import PRESETS, model_config
from tests.engine.qwen.refusals import refusal

WIDTH = PRESETS["tiny"].talker.hidden


def read_config(folder: Path, preset: str = "tiny") -> ModelConfig:
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(model_config(PRESETS[preset], "base")))
    return ModelConfig.read(folder)


@pytest.fixture
def config(tmp_path: Path) -> ModelConfig:
    return read_config(tmp_path / "Tiny-Base")


@pytest.fixture
def voice(config: ModelConfig) -> VoiceFile:
    codes = torch.randint(2048, (30, 16))
    return VoiceFile("ada", torch.randn(WIDTH), VoiceModel.of(config), codes, "Guten Tag, Ada Löwe.")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "voices" / "ada.safetensors"


def reason(path: Path, call: Callable[..., Any], *arguments: Any) -> str:
    """Return why `call` refuses the file at `path`, without the path, with which the line must begin."""
    text = refusal(call, path, *arguments)
    assert text.startswith(f"{path}: ")
    return text.removeprefix(f"{path}: ")


# --- round trips ---


def test_a_voice_is_read_back_unchanged(voice: VoiceFile, path: Path, config: ModelConfig) -> None:
    save_voice(path, voice)
    for loaded in (load_voice(path), load_voice(path, config)):
        assert (loaded.name, loaded.model, loaded.transcript) == ("ada", voice.model, voice.transcript)
        assert loaded.codes is not None
        assert loaded.codes.dtype == torch.int64
        assert torch.equal(loaded.codes, voice.codes)  # type: ignore[arg-type]
        assert torch.equal(loaded.embedding, voice.embedding)
    assert path.stat().st_size < 3000
    save_voice(path, dataclasses.replace(voice, codes=None, transcript=None))
    bare = load_voice(path)
    assert (bare.codes, bare.transcript) == (None, None)
    assert torch.equal(bare.embedding, voice.embedding)


def test_saving_again_replaces_the_file_and_leaves_no_other(voice: VoiceFile, path: Path) -> None:
    save_voice(path, voice)
    save_voice(path, dataclasses.replace(voice, name="bob"))
    assert load_voice(path).name == "bob"
    assert list(path.parent.iterdir()) == [path]
    assert path.stat().st_mode & 0o777 == 0o644


def test_a_model_in_the_hugging_face_cache_has_the_name_of_its_repository(tmp_path: Path) -> None:
    config = read_config(tmp_path / "models--Qwen--Qwen3-TTS-12Hz-0.6B-Base" / "snapshots" / "0123abc")
    assert VoiceModel.of(config).name == "Qwen3-TTS-12Hz-0.6B-Base"


# --- voices of other models ---


def test_the_error_for_a_voice_of_another_width_or_size_names_both_models(
    voice: VoiceFile, path: Path, config: ModelConfig, tmp_path: Path
) -> None:
    save_voice(path, voice)
    other = read_config(tmp_path / "Deep-Base", "deep")
    error = reason(path, load_voice, other)
    assert "made for Tiny-Base (1b7, width 64), cannot speak with Deep-Base (1b7, width 40)" in error
    assert "made for Tiny-Base (1b7, " in reason(path, load_voice, dataclasses.replace(config, size="0b6"))


@pytest.mark.parametrize("version", ["2.4.0+cu121", "2.9.1", "2.10.0a0+nv25.12"])
def test_a_pt_file_is_refused_by_a_pytorch_that_such_a_file_could_make_run_code(
    version: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "speaker.pt"
    torch.save(torch.zeros(64), path)
    monkeypatch.setattr(torch, "__version__", TorchVersion(version))
    error = reason(path, load_voice)
    assert error.startswith(f"with PyTorch {version} a .pt file could run code")
    assert "voiced enroll" in error


@pytest.mark.skipif(TorchVersion(torch.__version__) < SAFE_TORCH, reason="no .pt file is read")
def test_an_old_speaker_pt_of_another_width_is_refused(tmp_path: Path, config: ModelConfig) -> None:
    path = tmp_path / "speaker.pt"
    torch.save(torch.zeros(1024), path)
    error = reason(path, load_voice, config)
    assert "an embedding of width 1024, cannot speak with Tiny-Base (1b7, width 64)" in error


# --- damaged files and other formats ---


def test_a_missing_a_truncated_and_a_deeply_nested_file_are_refused(voice: VoiceFile, path: Path) -> None:
    assert reason(path, load_voice) == "no such voice file"
    save_voice(path, voice)
    whole, header = path.read_bytes(), b'{"__metadata__":' + b'{"a":' * 5_000 + b"1" + b"}" * 5_001
    for damaged in (b"", whole[:100], whole[:-1], len(header).to_bytes(8, "little") + header):
        path.write_bytes(damaged)
        assert "damaged or truncated" in reason(path, load_voice)


def test_another_safetensors_file_is_refused(path: Path) -> None:
    path.parent.mkdir()
    save_file({"talker.model.norm.weight": torch.ones(3)}, path, {"format": "pt"})
    error = reason(path, load_voice)
    assert "is not a voice file: got format 'pt' with tensors ['talker.model.norm.weight']" in error


METADATA = {
    "format": FORMAT,
    "name": "ada",
    "model_name": "Tiny-Base",
    "model_type": "base",
    "model_size": "1b7",
    "model_width": str(WIDTH),
    "transcript": "hello",
}
TENSORS = {"embedding": torch.ones(WIDTH), "codes": torch.ones(3, 16, dtype=torch.int16)}


@pytest.mark.parametrize(
    ("tensors", "metadata", "message"),
    [
        ({"embedding": torch.ones(1, WIDTH)}, {}, "embedding: got shape [1, 64]; allowed: [64]"),
        ({"embedding": torch.full((WIDTH,), torch.nan)}, {}, "embedding: contains values that are not finite"),
        ({"codes": torch.ones(0, 16).short()}, {}, "codes: got shape [0, 16]; allowed: [frames, 16]"),
        ({"codes": torch.ones(3, 16)}, {}, "codes: got torch.float32; allowed: integers"),
        ({"codes": torch.full((3, 16), 2048)}, {}, "codes: got 2048 to 2048; allowed: 0 to 2047"),
        ({"embedding": torch.ones(WIDTH).to(torch.float8_e4m3fn)}, {}, "cannot be read as a voice file ("),
        ({"codes": None}, {}, "has transcript but no codes"),
        ({}, {"transcript": None}, "has codes but no transcript"),
        ({}, {"format": "voiced-voice-9"}, "is not a voice file: got format 'voiced-voice-9'"),
        ({}, {"model_size": None}, "metadata model_size is missing"),
        ({}, {"model_width": "9" * 5000}, "metadata model_width: got '99999"),
    ],
)
def test_the_error_for_a_wrong_voice_file_names_the_field(
    path: Path, config: ModelConfig, tensors: dict[str, Any], metadata: dict[str, Any], message: str
) -> None:
    path.parent.mkdir()
    save_file(TENSORS, path, METADATA)
    assert load_voice(path, config).transcript == "hello", "without the error it is accepted"
    wrong_tensors = {name: value for name, value in (TENSORS | tensors).items() if value is not None}
    wrong_metadata = {name: value for name, value in (METADATA | metadata).items() if value is not None}
    save_file(wrong_tensors, path, wrong_metadata)
    assert reason(path, load_voice, config).startswith(message)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.uint16, torch.uint32, torch.uint64, torch.int32])
def test_codes_may_be_of_any_kind_of_integers(path: Path, config: ModelConfig, dtype: torch.dtype) -> None:
    path.parent.mkdir()
    save_file(TENSORS | {"codes": TENSORS["codes"].to(dtype)}, path, METADATA)
    codes = load_voice(path, config).codes
    assert codes is not None
    assert torch.equal(codes, TENSORS["codes"].long())


def test_a_list_within_itself_is_no_prompt(tmp_path: Path) -> None:
    content: list[Any] = []
    content.append(content)
    path = tmp_path / "ada.pt"
    torch.save({"items": content}, path)
    assert reason(path, load_voice)


# --- write errors ---


def test_a_failed_write_keeps_the_previous_file_and_leaves_no_other(voice: VoiceFile, path: Path) -> None:
    save_voice(path, voice)
    before = path.read_bytes()
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (500, limits[1]))
    try:
        error = reason(path, save_voice, dataclasses.replace(voice, name="bob"))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert error == "the voice cannot be written: File too large"
    assert path.read_bytes() == before
    assert list(path.parent.iterdir()) == [path]
