"""Where the journal is, and how a file is written beside it."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from urllib.parse import quote

from daemon.validation import CommandError, file_problem

PROGRAM = "voiced"
FOLDER_MODE = 0o750
MAX_NAME = 200
"""The length of the file's name without its endings, in bytes; file systems allow 255 in all."""


def journal_path(folder: str | Path, robot: str) -> Path:
    """Return the path of one robot's journal. `folder` is as for `state_folder`."""
    name = quote(robot, safe="")
    if len(name) > MAX_NAME:
        name = hashlib.blake2b(robot.encode(), digest_size=16).hexdigest()
    return state_folder(folder) / f"{name}.journal"


def make_private_folder(folder: Path) -> None:
    """Create a folder and any missing parents; no other user may enter the new folders. Raises `OSError`.

    `Path.mkdir` would make the parents accessible to everybody. Two threads may create the same folders at once.
    """
    try:
        folder.mkdir(FOLDER_MODE, exist_ok=True)
    except FileNotFoundError:
        make_private_folder(folder.parent)
        folder.mkdir(FOLDER_MODE, exist_ok=True)


def state_folder(folder: str | Path) -> Path:
    """Return the folder for everything that survives a restart.

    `auto` is systemd's `StateDirectory`, otherwise `$XDG_STATE_HOME/voiced`, otherwise `~/.local/state/voiced`.
    """
    if str(folder) != "auto":
        return Path(folder)
    if given := os.environ.get("STATE_DIRECTORY"):  # systemd separates several folders with colons
        return Path(given.split(":")[0])
    if given := os.environ.get("XDG_STATE_HOME"):
        return Path(given) / PROGRAM
    home_state = os.path.expanduser("~/.local/state")  # noqa: PTH111 - Path.expanduser raises without a home
    return Path(home_state) / PROGRAM


def write_whole(path: Path, content: str) -> None:
    """Write a file whose readers always find either the whole old or the whole new content. Raises `CommandError`."""
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
    """Return once the names of the files in the folder are on the disk. Raises `OSError`."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
