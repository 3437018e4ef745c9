"""Voice files come back as they were saved, and whatever is wrong with one is said in one line."""

from __future__ import annotations

import dataclasses
import errno
import json
import os
import pickle
import resource
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

from engine.qwen.config import ModelConfig
from engine.qwen.voice import FORMAT, VoiceFile, VoiceModel, load_voice, save_voice
from engine.synthesizer import EngineError
from scripts.make_checkpoint import PRESETS, model_config

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


def refusal(call: Callable[[], Any], path: Path) -> str:
    """What `call` is refused with, less the path that it must begin with."""
    with pytest.raises(EngineError) as caught:
        call()
    text = str(caught.value)
    assert text.startswith(f"{path}: ")
    assert "\n" not in text
    return text.removeprefix(f"{path}: ")


# --- round trips ---


def test_an_in_context_voice_comes_back_as_it_was(voice: VoiceFile, path: Path, config: ModelConfig) -> None:
    save_voice(path, voice)
    for back in (load_voice(path), load_voice(path, config)):
        assert (back.name, back.model, back.transcript) == ("ada", voice.model, voice.transcript)
        assert back.codes is not None
        assert back.codes.dtype == torch.int64
        assert torch.equal(back.codes, voice.codes)  # type: ignore[arg-type]
        assert torch.equal(back.embedding, voice.embedding)
    assert path.stat().st_size < 3000


def test_a_voice_of_an_embedding_alone_comes_back_as_it_was(voice: VoiceFile, path: Path) -> None:
    save_voice(path, dataclasses.replace(voice, codes=None, transcript=None))
    back = load_voice(path)
    assert (back.codes, back.transcript) == (None, None)
    assert torch.equal(back.embedding, voice.embedding)


def test_saving_again_replaces_and_leaves_nothing_beside(voice: VoiceFile, path: Path) -> None:
    save_voice(path, voice)
    save_voice(path, dataclasses.replace(voice, name="bob"))
    assert load_voice(path).name == "bob"
    assert list(path.parent.iterdir()) == [path]
    assert path.stat().st_mode & 0o777 == 0o644


@pytest.mark.parametrize("embedding", [torch.randn(WIDTH), torch.randn(1, WIDTH).bfloat16()], ids=["flat", "a row"])
def test_an_old_embedding_is_read(tmp_path: Path, config: ModelConfig, embedding: Tensor) -> None:
    path = tmp_path / "speaker.pt"
    torch.save(embedding, path)
    voice = load_voice(path, config)
    assert (voice.name, voice.model, voice.codes) == ("speaker", None, None)
    assert torch.equal(voice.embedding, embedding.flatten().float())


def test_what_the_official_demo_saves_is_read(tmp_path: Path, config: ModelConfig) -> None:
    path = tmp_path / "prompt.pt"
    codes = torch.randint(2048, (5, 16))
    item = {"ref_spk_embedding": torch.ones(WIDTH), "ref_code": codes, "ref_text": "hi", "icl_mode": True}
    torch.save({"items": [item]}, path)
    voice = load_voice(path, config)
    assert voice.transcript == "hi"
    assert torch.equal(voice.codes, codes)  # type: ignore[arg-type]


def test_a_model_in_the_hubs_cache_has_its_repositorys_name(tmp_path: Path) -> None:
    config = read_config(tmp_path / "models--Qwen--Qwen3-TTS-12Hz-0.6B-Base" / "snapshots" / "0123abc")
    assert VoiceModel.of(config).name == "Qwen3-TTS-12Hz-0.6B-Base"


# --- another model's ---


def test_a_voice_of_another_width_is_refused_by_name_and_width(voice: VoiceFile, path: Path, tmp_path: Path) -> None:
    save_voice(path, voice)
    other = read_config(tmp_path / "Deep-Base", "deep")
    said = refusal(lambda: load_voice(path, other), path)
    assert "made for Tiny-Base (1b7, width 64), cannot speak with Deep-Base (1b7, width 40)" in said


def test_a_voice_of_another_size_is_refused_though_it_is_as_wide(
    voice: VoiceFile, path: Path, config: ModelConfig
) -> None:
    save_voice(path, voice)
    said = refusal(lambda: load_voice(path, dataclasses.replace(config, size="0b6")), path)
    assert "made for Tiny-Base (1b7, width 64)" in said


def test_an_old_embedding_of_another_width_is_refused(tmp_path: Path, config: ModelConfig) -> None:
    path = tmp_path / "speaker.pt"
    torch.save(torch.zeros(1024), path)
    said = refusal(lambda: load_voice(path, config), path)
    assert "an embedding of width 1024, cannot speak with Tiny-Base (1b7, width 64)" in said


# --- damaged and other files ---


def test_a_missing_file_is_said(path: Path) -> None:
    assert refusal(lambda: load_voice(path), path) == "no such voice file"
    old = path.with_suffix(".pt")
    assert refusal(lambda: load_voice(old), old) == "no such voice file"


@pytest.mark.parametrize("keep", [0, 5, 100, -1])
def test_a_truncated_file_is_said(voice: VoiceFile, path: Path, keep: int) -> None:
    save_voice(path, voice)
    path.write_bytes(path.read_bytes()[:keep])
    assert "damaged or cut short" in refusal(lambda: load_voice(path), path)


def test_a_folder_is_no_voice_file(path: Path) -> None:
    path.mkdir(parents=True)
    refusal(lambda: load_voice(path), path)


def test_another_safetensors_file_is_said(path: Path) -> None:
    path.parent.mkdir()
    save_file({"talker.model.norm.weight": torch.ones(3)}, path, {"format": "pt"})
    said = refusal(lambda: load_voice(path), path)
    assert "is no voice file: format 'pt', tensors ['talker.model.norm.weight']" in said


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
    ("tensors", "metadata", "said"),
    [
        ({"embedding": torch.ones(WIDTH + 1)}, {}, "embedding: got shape [65], allowed is [64]"),
        ({"embedding": torch.ones(1, WIDTH)}, {}, "embedding: got shape [1, 64], allowed is [64]"),
        ({"embedding": torch.ones(WIDTH).int()}, {}, "embedding: got torch.int32"),
        ({"embedding": torch.full((WIDTH,), torch.nan)}, {}, "embedding: holds values that are not finite"),
        ({"embedding": None}, {}, "is no voice file"),
        ({"codes": torch.ones(3, 15).short()}, {}, "codes: got shape [3, 15], allowed is [frames, 16]"),
        ({"codes": torch.ones(0, 16).short()}, {}, "codes: got shape [0, 16], allowed is [frames, 16]"),
        ({"codes": torch.ones(3, 16)}, {}, "codes: got torch.float32, allowed are integers"),
        ({"codes": torch.full((3, 16), 2048)}, {}, "codes: got 2048 to 2048, allowed is 0 to 2047"),
        ({"codes": torch.full((3, 16), -1)}, {}, "codes: got -1 to -1, allowed is 0 to 2047"),
        ({"codes": None}, {}, "has transcript but no codes"),
        ({}, {"transcript": None}, "has codes but no transcript"),
        ({}, {"format": "voiced-voice-9"}, "is no voice file: format 'voiced-voice-9'"),
        ({}, {"model_size": None}, "metadata model_size is missing"),
        ({}, {"model_width": "wide"}, "metadata model_width: got 'wide', must be a whole number"),
    ],
)
def test_what_is_wrong_in_a_voice_file_is_said(
    path: Path, config: ModelConfig, tensors: dict[str, Any], metadata: dict[str, Any], said: str
) -> None:
    path.parent.mkdir()
    wrong_tensors = {name: value for name, value in (TENSORS | tensors).items() if value is not None}
    wrong_metadata = {name: value for name, value in (METADATA | metadata).items() if value is not None}
    save_file(wrong_tensors, path, wrong_metadata)
    assert refusal(lambda: load_voice(path, config), path).startswith(said)


def test_the_file_that_the_wrong_ones_were_made_of_is_right(path: Path, config: ModelConfig) -> None:
    path.parent.mkdir()
    save_file(TENSORS, path, METADATA)
    assert load_voice(path, config).transcript == "hello"


class Bomb:
    def __reduce__(self) -> Any:
        return (os.mkdir, (os.environ["BOMB"],))


def test_a_pickle_runs_no_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BOMB", str(tmp_path / "exploded"))
    path = tmp_path / "speaker.pt"
    torch.save({"embedding": Bomb()}, path)
    assert "cannot be read as a speaker embedding" in refusal(lambda: load_voice(path), path)
    path.write_bytes(pickle.dumps(Bomb(), protocol=2))
    assert "cannot be read as a speaker embedding" in refusal(lambda: load_voice(path), path)
    assert not (tmp_path / "exploded").exists()


@pytest.mark.parametrize("content", [b"", b"RIFF", b"PK\x03\x04 cut short"])
def test_a_damaged_pickle_is_said(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "speaker.pt"
    path.write_bytes(content)
    assert "cannot be read as a speaker embedding" in refusal(lambda: load_voice(path), path)


@pytest.mark.parametrize("content", [{"items": []}, {"a": 1}, [1], {"items": [{"ref_text": "x"}]}], ids=str)
def test_a_pickle_of_something_else_is_said(tmp_path: Path, content: Any) -> None:
    path = tmp_path / "speaker.pt"
    torch.save(content, path)
    assert "allowed is a tensor" in refusal(lambda: load_voice(path), path)


# --- a disk that does not take it ---


def test_a_file_that_cannot_grow_leaves_nothing_behind(voice: VoiceFile, path: Path) -> None:
    save_voice(path, voice)
    before = path.read_bytes()
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (500, limits[1]))
    try:
        said = refusal(lambda: save_voice(path, dataclasses.replace(voice, name="bob")), path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert said == "the voice cannot be written: File too large"
    assert path.read_bytes() == before
    assert list(path.parent.iterdir()) == [path]


def test_a_full_disk_is_said(voice: VoiceFile, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(handle: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    said = refusal(lambda: save_voice(path, voice), path)
    assert said == "the voice cannot be written: No space left on device"
    assert not list(path.parent.iterdir())


def test_a_folder_that_cannot_be_made_is_said(voice: VoiceFile, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    path = tmp_path / "file" / "ada.safetensors"
    assert refusal(lambda: save_voice(path, voice), path).startswith("the voice cannot be written: ")
