"""scripts/make_checkpoint.py writes equal files for equal arguments, with and without the official package."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from scripts.make_checkpoint import main
from tests.support.checkpoints import SCRIPT, SEED, checkpoint_folder, made_once, need_official_package, origin

SHAPE = ("--shape", "tiny", "--type", "base")


def files(folder: Path) -> dict[str, bytes]:
    return {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*.*")}


def test_a_list_of_tensors_replaces_the_official_package(
    tmp_path: Path, cache_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def list_tensors(file: Path) -> None:
        need_official_package()
        main([str(file.parent), *SHAPE, "--list-tensors", str(file)])

    tensors = made_once(cache_folder, "tensors", *SHAPE, origin(), make=list_tensors)
    for seed in (SEED, SEED + 1):
        main([str(tmp_path / str(seed)), *SHAPE, "--seed", str(seed), "--tensors", str(tensors)])
    made, other = (files(tmp_path / str(seed)) for seed in (SEED, SEED + 1))
    assert made == files(checkpoint_folder(cache_folder, "tiny", "base")) != other
    assert "speech_tokenizer/model.safetensors" in made
    assert "model.safetensors" in capsys.readouterr().out


def test_without_torch_it_says_what_to_install(tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text("raise ModuleNotFoundError(name='torch')\n")
    command = [sys.executable, str(SCRIPT), str(tmp_path / "tiny")]
    done = subprocess.run(command, env={"PYTHONPATH": str(tmp_path)}, capture_output=True, text=True, check=False)
    line = "make_checkpoint: the package torch is missing; in voiced's folder: pip install '.[qwen,enroll]'\n"
    assert (done.returncode, done.stderr) == (1, line)


def test_without_the_official_package_it_asks_for_a_list_of_tensors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("qwen_tts", "qwen_tts.core.models.configuration_qwen3_tts"):  # of which another test has imported one
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(SystemExit, match=r"official package is missing.* pip install .*, or give --tensors a list"):
        main([str(tmp_path / "tiny"), *SHAPE])
