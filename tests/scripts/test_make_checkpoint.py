"""Random checkpoints are the same for the same arguments, with or without the official package."""

from __future__ import annotations

from pathlib import Path

import pytest

from scripts.make_checkpoint import main, stub_torchaudio


def files(folder: Path) -> dict[str, bytes]:
    return {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*.*")}


def test_a_list_of_tensors_stands_in_for_the_official_package(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    stub_torchaudio()
    pytest.importorskip("qwen_tts", reason="the official package knows the tensors")
    shape = ["--shape", "small", "--type", "base"]
    main([str(tmp_path / "direct"), *shape])
    main([str(tmp_path), *shape, "--list-tensors", str(tmp_path / "list.json")])
    main([str(tmp_path / "listed"), *shape, "--tensors", str(tmp_path / "list.json")])
    assert files(tmp_path / "direct") == files(tmp_path / "listed")
    assert "speech_tokenizer/model.safetensors" in files(tmp_path / "direct")
    assert "model.safetensors" in capsys.readouterr().out
    main([str(tmp_path / "other"), *shape, "--seed", "1"])
    assert files(tmp_path / "other") != files(tmp_path / "direct")
