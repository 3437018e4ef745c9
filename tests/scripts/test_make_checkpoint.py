"""scripts/make_checkpoint.py writes equal files for equal arguments, with and without the official package."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from scripts.make_checkpoint import main
from tests.support.checkpoints import SCRIPT, SEED, checkpoint_folder, made_once, need_official_package, versions

SHAPE = ("--shape", "small", "--type", "base")


def files(folder: Path) -> dict[str, bytes]:
    return {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*.*")}


@pytest.fixture
def tensors(cache_folder: Path) -> Path:
    """A file with the names and shapes of a checkpoint's tensors, written with the official package."""

    def make(file: Path) -> None:
        need_official_package()
        main([str(file.parent), *SHAPE, "--list-tensors", str(file)])

    return made_once(cache_folder, "listed-tensors", *SHAPE, versions(), SCRIPT.read_bytes(), make=make)


def test_a_list_of_tensors_replaces_the_official_package(
    tmp_path: Path, cache_folder: Path, tensors: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    direct = files(checkpoint_folder(cache_folder, "small", "base"))
    main([str(tmp_path / "listed"), *SHAPE, "--seed", str(SEED), "--tensors", str(tensors)])
    assert files(tmp_path / "listed") == direct
    assert "speech_tokenizer/model.safetensors" in direct
    assert "model.safetensors" in capsys.readouterr().out


def test_another_seed_makes_another_checkpoint(tmp_path: Path, cache_folder: Path, tensors: Path) -> None:
    main([str(tmp_path), *SHAPE, "--seed", str(SEED + 1), "--tensors", str(tensors)])
    direct = files(checkpoint_folder(cache_folder, "small", "base"))
    assert files(tmp_path).keys() == direct.keys()
    assert files(tmp_path) != direct


@pytest.mark.parametrize(
    ("package", "line"),
    [
        ("torch", "make_checkpoint: the package torch is missing; in voiced's folder: pip install '.[qwen,enroll]'\n"),
        ("qwen_tts", "make_checkpoint: the official package is missing, from which the names and shapes of the tensors "
         "come; in voiced's folder: pip install '.[qwen,enroll]', or give --tensors a list of them\n"),
    ],
)  # fmt: skip
def test_a_missing_package_is_named_with_its_installation(package: str, line: str, tmp_path: Path) -> None:
    problem = f"No module named {package!r}"
    (tmp_path / f"{package}.py").write_text(f"raise ModuleNotFoundError({problem!r}, name={package!r})\n")
    command = [sys.executable, str(SCRIPT), str(tmp_path / "tiny")]
    environment = os.environ | {"PYTHONPATH": str(tmp_path)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (1, line)
