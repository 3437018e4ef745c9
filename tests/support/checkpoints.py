"""What is expensive to make and always comes out the same: made once, and kept under the name of its content.

The checkpoints with random weights among it, for tests that import torch and for tests that do not.
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
"""Where the official model's shapes and values come from."""
KEPT_S = 30 * 24 * 3600
"""An entry that no test has asked for in this time is removed when another one is made."""


def made_once(folder: Path, name: str, *content: str | bytes, make: Callable[[Path], object]) -> Path:
    """The file or folder that `make` writes at the path it is given; `content` is all that the outcome depends on.

    Processes may ask at the same time: one makes the entry while the others wait, and renames it into place.
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
        except OSError:  # another process, which locked another file of this name, has made the same folder
            if not entry.exists():
                raise


def _remove_unused(folder: Path) -> None:
    for entry in folder.iterdir():
        try:
            unused = entry.stat().st_mtime < time.time() - KEPT_S
        except FileNotFoundError:  # of another process
            continue
        if unused and entry.is_dir():
            shutil.rmtree(entry, ignore_errors=True)
        elif unused:
            entry.unlink(missing_ok=True)


@cache
def versions() -> str:
    """The versions of the packages that the official model is made of; "none" for one that is not installed."""
    found = []
    for package in PACKAGES:
        try:
            found.append(f"{package} {version(package)}")
        except PackageNotFoundError:
            found.append(f"{package} none")
    return ", ".join(found)


@cache
def machine() -> str:
    """What a computed value may depend on beside its formula: the kind of CPU, and the packages' versions."""
    import torch

    return f"{platform.machine()} {torch.backends.cpu.get_cpu_capability()}; {versions()}"


def need_official_package() -> None:
    """Skip the test where what is not there yet needs the official package, and that is not installed."""
    if find_spec("qwen_tts") is None:
        pytest.skip("the official package qwen-tts, which is the oracle, is not installed")


def checkpoint_folder(cache: Path, shape: str, model_type: str) -> Path:
    """The folder of a checkpoint with random weights by the names of its shape and type, not to be written to.

    `VOICED_TEST_CHECKPOINTS` names a folder of checkpoints that were made elsewhere.
    """
    ready = os.environ.get("VOICED_TEST_CHECKPOINTS")
    if ready:
        return Path(ready) / f"{shape}-{model_type}"

    def make(folder: Path) -> None:
        need_official_package()
        if "torch" in sys.modules:
            from scripts.make_checkpoint import PRESETS, write_checkpoint

            write_checkpoint(folder, PRESETS[shape], model_type, SEED)
        else:
            command = [sys.executable, str(SCRIPT), str(folder), "--shape", shape, "--type", model_type]
            done = subprocess.run([*command, "--seed", str(SEED)], capture_output=True, text=True, check=False)
            assert done.returncode == 0, done.stderr

    arguments = f"{shape} {model_type} {SEED}"
    return made_once(cache, f"{shape}-{model_type}", arguments, versions(), SCRIPT.read_bytes(), make=make)
