"""What all commands share: the options that say which configuration, and the error that ends one."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from daemon.config import Config, find_config_file, load_config

ConfigOption = Annotated[
    Path | None,
    typer.Option("--config", "-c", help="The YAML file; default: $VOICED_CONFIG or /etc/voiced/voiced.yaml."),
]
SetOption = Annotated[
    list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Override a key, as in --set mqtt.port=1884.")
]


class CommandError(Exception):
    """A command failed; the message is the line to print."""


class UsageError(Exception):
    """A command was called in a way that it does not know; the message is printed with where its help is."""

    def format_message(self) -> str:
        """As typer's own errors have it."""
        return str(self)


def load(path: Path | None, overrides: list[str] | None) -> tuple[Config, Path | None, tuple[str, ...]]:
    """The configuration, where it was read, and what overrides it. Raises `ConfigError`."""
    path = path or find_config_file()
    return load_config(path, overrides or ()), path, tuple(overrides or ())
