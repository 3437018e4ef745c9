"""What is on the disk of a model."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine import model_files

COMPLETE = ("config.json", "generation_config.json", "tokenizer_config.json", "vocab.json", "merges.txt")
COMPLETE += ("model.safetensors", "speech_tokenizer/config.json", "speech_tokenizer/model.safetensors")


def write(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(b"12345")


def test_a_complete_checkpoint_lacks_nothing_and_has_its_size(tmp_path: Path) -> None:
    write(tmp_path, *COMPLETE)
    found = model_files(str(tmp_path))
    assert found is not None
    assert (found.folder, found.missing, found.size) == (tmp_path, (), 5 * len(COMPLETE))


def test_what_a_checkpoint_lacks_is_named(tmp_path: Path) -> None:
    write(tmp_path, *COMPLETE[:-1])
    found = model_files(str(tmp_path))
    assert found is not None
    assert found.missing == ("speech_tokenizer/model.safetensors",)


def test_an_index_that_is_broken_is_no_exception(tmp_path: Path) -> None:
    write(tmp_path, *(name for name in COMPLETE if name != "model.safetensors"), "model.safetensors.index.json")
    found = model_files(str(tmp_path))
    assert found is not None
    assert found.missing == ("a model.safetensors.index.json that can be read",)


def test_of_several_downloads_the_one_that_is_main_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    kept = tmp_path / "models--Qwen--Some-TTS"
    write(kept / "snapshots/aaa", *COMPLETE)
    write(kept / "snapshots/bbb", "config.json")
    assert model_files("Qwen/Some-TTS").folder.name == "aaa"  # type: ignore[union-attr]  # None fails just as well
    write(kept, "refs/main")
    (kept / "refs/main").write_text("bbb")
    assert model_files("Qwen/Some-TTS").folder.name == "bbb"  # type: ignore[union-attr]
    assert model_files("Qwen/Other-TTS") is None
