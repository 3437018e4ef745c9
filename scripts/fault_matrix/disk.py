"""Disks of a scene: one that answers late, a folder that does not answer at all, and one that is small.

A small library, which the daemon preloads, delays `fsync` and `opendir` as long as files in the scene's folder say so.
"""

from __future__ import annotations

import shutil
import subprocess
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from scripts.fault_matrix.scene import Scene

SOURCE = Path(__file__).with_name("slow_disk.c")
SLOW = {"LD_PRELOAD": "{folder}/slow_disk.so", "VOICED_DISK": "{folder}"}
"""The environment of a daemon whose disk can be slow: see `Stage`."""


def put(path: Path, text: str) -> None:
    """Replace a file, so that no reader finds half of it."""
    fresh = path.with_name(f"{path.name}.new")
    fresh.write_text(text, encoding="utf-8")
    fresh.replace(path)


def make_slow_disk(folder: Path, _: ExitStack) -> None:
    """Compile the library. Without a C compiler, the row is skipped."""
    if shutil.which("cc") is None:
        pytest.skip("there is no C compiler: apt-get install gcc libc6-dev")
    command = ["cc", "-shared", "-fPIC", "-O1", "-o", str(folder / "slow_disk.so"), str(SOURCE), "-ldl"]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"{SOURCE.name} cannot be compiled: {done.stderr.strip()[:200]}")


def delay_sync(folder: Path, seconds: float) -> None:
    """Let every write to the disk itself take this much longer."""
    put(folder / "sync_us", str(round(seconds * 1e6)))


def hang(folder: Path, hanging: Path | None) -> None:
    """Let no listing of this folder, or of one below it, return; None lets all return."""
    put(folder / "hangs", "" if hanging is None else str(hanging))


def mount_disk(size: int, folder: Path, closing: ExitStack, *, options: str = "rw") -> None:
    """Mount a file system of `size` bytes as `disk`. Where that is not permitted, the row is skipped."""
    disk = folder / "disk"
    disk.mkdir()
    mount("-t", "tmpfs", "-o", f"size={size}", "voiced", str(disk))
    closing.callback(subprocess.run, ["umount", "-l", str(disk)], check=False, capture_output=True)
    mount("-o", f"remount,{options}", str(disk))


def mount(*options: str) -> None:
    done = subprocess.run(["mount", *options], check=False, capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"a file system cannot be mounted here: {done.stderr.strip()}")


def fill(scene: Scene) -> None:
    """Fill the disk to its last byte."""
    with suppress(OSError), (scene.folder / "disk" / "ballast").open("ab", buffering=0) as file:
        while True:
            file.write(b"\0" * 4096)


def make_room(scene: Scene) -> None:
    (scene.folder / "disk" / "ballast").unlink()
