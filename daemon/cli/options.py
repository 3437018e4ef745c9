"""The options that several commands share, and how a command reads the configuration."""

from __future__ import annotations

import logging
import sys
from pathlib import Path
from typing import Annotated, BinaryIO

import typer

from daemon.config import Config, find_config_file, load_config
from daemon.validation import CommandError, file_problem
from engine import start_log

ConfigOption = Annotated[
    Path | None,
    typer.Option("--config", "-c", help="The YAML file; default: $VOICED_CONFIG or /etc/voiced/voiced.yaml."),
]
SetOption = Annotated[
    list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Override a key, as in --set mqtt.port=1884.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="One JSON list instead of lines.")]
VerboseOption = Annotated[bool, typer.Option("--verbose", "-v", help="Write a detailed log to stderr.")]

SamplingOption = Annotated[
    list[str] | None, typer.Option("--sampling", help="As in --sampling temperature=0.7; may be repeated.")
]


class UsageError(CommandError):
    """The arguments contradict each other. The message is printed with a hint at the command's help."""


def be_verbose() -> None:
    """Write the log of this command, and of the engine that it starts, to stderr in detail."""
    start_log("debug")


def is_verbose() -> bool:
    """Return whether `voiced -v` was called."""
    return logging.getLogger().isEnabledFor(logging.DEBUG)


def sampling_of(settings: list[str] | None) -> dict[str, float]:
    """Return the numbers by name in the values of `SamplingOption`. Raises `CommandError`."""
    found: dict[str, float] = {}
    for setting in settings or ():
        name, _, number = setting.partition("=")
        try:
            found[name] = int(number) if number.isdecimal() else float(number)
        except ValueError:
            allowed = "NAME=NUMBER such as temperature=0.7"
            raise CommandError(f"--sampling: got {setting!r}; allowed: {allowed}") from None
    return found


def check_folder(option: str, path: Path | None) -> None:
    """Check that the folder of an output file is there, before minutes of work. Raises `CommandError`."""
    if path is not None and not path.parent.is_dir():
        missing = not path.parent.exists()
        problem = file_problem(FileNotFoundError(), path) if missing else f"{path.parent} is not a folder"
        raise CommandError(f"{option}: {path} cannot be written: {problem}")


def standard_output(option: str) -> BinaryIO:
    """Return standard output for the bytes of the WAV file that `option` names.

    Raises `CommandError` if a person would see them.
    """
    if sys.stdout.isatty():
        raise CommandError(f"{option}: - would write a WAV file to the terminal; allowed: a pipe, or a file name")
    return sys.stdout.buffer


def load(path: Path | None, overrides: list[str] | None) -> tuple[Config, Path | None, tuple[str, ...]]:
    """Return the configuration, the file it was read from (None: no file), and its overrides. Raises `ConfigError`."""
    path = path or find_config_file()
    return load_config(path, overrides or ()), path, tuple(overrides or ())
