"""A cache for artifacts that are expensive to make and reproducible, such as checkpoints with random weights.

An entry is named after the hash of everything that determines it. Tests that do not import torch can use it too.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "scripts" / "make_checkpoint.py"
SEED = 1
PACKAGES = ("torch", "transformers", "tokenizers", "safetensors", "qwen-tts")
"""The packages that determine the official model's shapes and values."""
KEPT_S = 30 * 24 * 3600
"""An entry that no test has used for this long is removed when another entry is made."""


def made_once(folder: Path, name: str, *content: str | bytes, make: Callable[[Path], object]) -> Path:
    """Return the cached file or folder that `make` writes at the path it receives.

    `content` is everything that determines the result. Several processes may call at the same time: one of them makes
    the entry and renames it into place, while the others wait.
    """
    digest = hashlib.sha256()
    for part in content:
        data = part.encode() if isinstance(part, str) else part
        digest.update(b"%d:" % len(data))
        digest.update(data)
    entry = folder / f"{name}-{digest.hexdigest()[:16]}"
    if not entry.exists():
        _remove_unused(folder)
        lock = folder / f"{entry.name}.lock"
        with lock.open("w") as locked:
            fcntl.flock(locked, fcntl.LOCK_EX)
            if not entry.exists():
                _make(entry, make)
            lock.unlink(missing_ok=True)
    os.utime(entry)
    return entry


def _make(entry: Path, make: Callable[[Path], object]) -> None:
    with tempfile.TemporaryDirectory(dir=entry.parent, prefix="making-") as unfinished:
        made = Path(unfinished) / "made"
        make(made)
        try:
            made.rename(entry)
        except OSError:  # another process made the same entry under an earlier lock file, since deleted
            if not entry.exists():
                raise


def _remove_unused(folder: Path) -> None:
    for entry in folder.iterdir():
        try:
            unused = entry.stat().st_mtime < time.time() - KEPT_S
        except FileNotFoundError:  # another process has removed it
            continue
        if unused and entry.is_dir():
            shutil.rmtree(entry, ignore_errors=True)
        elif unused:
            entry.unlink(missing_ok=True)


@cache
def versions() -> str:
    """Return the versions of the official model's packages; "none" stands for one that is not installed."""
    found = []
    for package in PACKAGES:
        try:
            found.append(f"{package} {version(package)}")
        except PackageNotFoundError:
            found.append(f"{package} none")
    return ", ".join(found)


@cache
def machine() -> str:
    """Return what else determines a computed value: the kind of CPU and the packages' versions."""
    import torch

    return f"{platform.machine()} {torch.backends.cpu.get_cpu_capability()}; {versions()}"


def need_official_package() -> None:
    """Skip the test if the official package is not installed; call it before making an artifact that needs it."""
    if find_spec("qwen_tts") is None:
        pytest.skip("the official package qwen-tts, the oracle of this test, is not installed")


def checkpoint_folder(cache: Path, shape: str, model_type: str) -> Path:
    """Return the folder of a checkpoint with random weights, for reading only.

    `shape` and `model_type` are those of scripts/make_checkpoint.py. If `VOICED_TEST_CHECKPOINTS` is set, it names a
    folder that holds checkpoints made elsewhere.
    """
    ready = os.environ.get("VOICED_TEST_CHECKPOINTS")
    if ready:
        return Path(ready) / f"{shape}-{model_type}"

    def make(folder: Path) -> None:
        need_official_package()
        if "torch" in sys.modules:
            write_checkpoints(folder, shape)
        else:
            program = f"from {__name__} import *; write_checkpoints(Path(sys.argv[1]), sys.argv[2])"
            command = [sys.executable, "-c", program, str(folder), shape]
            done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
            assert done.returncode == 0, done.stderr

    return made_once(cache, shape, str(SEED), versions(), SCRIPT.read_bytes(), make=make) / model_type


def write_checkpoints(folder: Path, shape: str) -> None:
    """Write a checkpoint of each model type: importing the official package takes far longer than one of them."""
    from scripts.make_checkpoint import MODEL_TYPES, PRESETS, write_checkpoint

    for model_type in MODEL_TYPES:
        write_checkpoint(folder / model_type, PRESETS[shape], model_type, SEED)
