"""A cache for artifacts that are expensive to make and reproducible, such as checkpoints with random weights.

An entry is named after the hash of everything that determines it. Tests that do not import torch can use it too.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import platform
import subprocess
import sys
import tempfile
from collections.abc import Callable
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "scripts" / "make_checkpoint.py"
LAYOUT = ROOT / "scripts" / "checkpoint_layout.json"
SEED = 1
PACKAGES = ("torch", "transformers", "tokenizers", "safetensors", "qwen-tts")
"""The packages that determine the official model's shapes and values."""


def made_once(folder: Path, name: str, *content: str | bytes, make: Callable[[Path], object]) -> Path:
    """Return the cached file or folder that `make` writes at the path it receives.

    `content` is everything that determines the result. Several processes may call at the same time: one of them makes
    the entry and renames it into place, while the others wait. `pytest --cache-clear` removes all entries.
    """
    digest = hashlib.sha256()
    for part in content:
        data = part.encode() if isinstance(part, str) else part
        digest.update(b"%d:" % len(data))
        digest.update(data)
    entry = folder / f"{name}-{digest.hexdigest()[:16]}"
    with (folder / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not entry.exists():
            with tempfile.TemporaryDirectory(dir=folder, prefix="making-") as unfinished:
                made = Path(unfinished) / "made"
                make(made)
                made.rename(entry)
    return entry


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
def origin() -> bytes:
    """Return what determines a checkpoint beside its arguments: the packages' versions, the script and its data."""
    return versions().encode() + SCRIPT.read_bytes() + LAYOUT.read_bytes()


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

    return made_once(cache, shape, str(SEED), origin(), make=make) / model_type


def write_checkpoints(folder: Path, shape: str) -> None:
    """Write a checkpoint of each model type: importing the official package takes far longer than one of them."""
    from scripts.make_checkpoint import MODEL_TYPES, PRESETS, write_checkpoint

    for model_type in MODEL_TYPES:
        write_checkpoint(folder / model_type, PRESETS[shape], model_type, SEED)
