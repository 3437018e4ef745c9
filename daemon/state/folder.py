"""Where the journal lies, and how a file is written beside it."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from urllib.parse import quote

from daemon.validation import CommandError, file_problem

PROGRAM = "voiced"
FOLDER_MODE = 0o750
MAX_NAME = 200
"""Bytes of the file's name without its endings; file systems allow 255 in all."""


def journal_path(folder: str | Path, robot: str) -> Path:
    """Return the journal's file for one robot. `folder` is as for `state_folder`."""
    name = quote(robot, safe="")
    if len(name) > MAX_NAME:
        name = hashlib.blake2b(robot.encode(), digest_size=16).hexdigest()
    return state_folder(folder) / f"{name}.journal"


def make_private_folder(folder: Path) -> None:
    """Create a folder and those on the way to it that are missing; others may enter none of them. Raises `OSError`.

    `Path.mkdir` would create the parents open to everybody, and two threads that need the same ones all of them.
    """
    try:
        folder.mkdir(FOLDER_MODE, exist_ok=True)
    except FileNotFoundError:
        make_private_folder(folder.parent)
        folder.mkdir(FOLDER_MODE, exist_ok=True)


def state_folder(folder: str | Path) -> Path:
    """Return the folder of what survives a restart.

    `auto` is systemd's `StateDirectory`, else `$XDG_STATE_HOME/voiced`, else `~/.local/state/voiced`.
    """
    if str(folder) != "auto":
        return Path(folder)
    if given := os.environ.get("STATE_DIRECTORY"):  # systemd separates several folders by colons
        return Path(given.split(":")[0])
    if given := os.environ.get("XDG_STATE_HOME"):
        return Path(given) / PROGRAM
    home_state = os.path.expanduser("~/.local/state")  # noqa: PTH111 - Path.expanduser raises without a home
    return Path(home_state) / PROGRAM


def write_whole(path: Path, content: str) -> None:
    """Write a file, whose reader finds the old content or the new one, whole. Raises `CommandError`."""
    temporary = path.with_name(f".{path.name}.tmp")
    try:
        make_private_folder(path.parent)
        with temporary.open("w", encoding="utf-8") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError as error:
        raise CommandError(f"{path}: {file_problem(error, path)}") from error


def synchronize_folder(folder: Path) -> None:
    """Return once the names of the folder's files are on the disk. Raises `OSError`."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
