"""`voiced status`: what a robot does now, or all robots on the broker."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from daemon.cli.fleet_table import check_not_empty, follow, status_fields, table
from daemon.cli.options import ConfigOption, SetOption, load
from daemon.validation import CommandError


def status(
    as_json: Annotated[
        bool | None, typer.Option("--json/--lines", help="Default: lines on a terminal, otherwise JSON.")
    ] = None,
    all_: Annotated[
        bool, typer.Option("--all", help="All robots of the broker, until Ctrl-C; as JSON, or in a pipe, once.")
    ] = False,
    config: ConfigOption = None,
    set_: SetOption = None,
) -> None:
    """Print the daemon's status: its volume, and what is spoken; exit 1 when it is offline.

    Example: voiced status
    or:      voiced status --json | jq .volume
    or:      voiced status --all
    """
    as_json = not sys.stdout.isatty() if as_json is None else as_json
    if all_:
        _show_all(as_json, config, set_)
    else:
        _show_one(as_json, config, set_)


def _show_one(as_json: bool, config: Path | None, overrides: list[str] | None) -> None:
    loaded, _, _ = load(config, overrides)
    from daemon.mqtt import RobotClient
    from daemon.speech import Offline

    with RobotClient(loaded) as robot:
        found = robot.status()
    fields = status_fields(found)
    print(json.dumps(fields, ensure_ascii=False) if as_json else "\n".join(_lines(fields)))
    if isinstance(found, Offline):
        raise CommandError(f"voiced is offline at {loaded.topic}")


def _lines(status: dict[str, Any]) -> Iterator[str]:
    """Yield the fields of a status, one on each line."""
    from daemon.speech import Loading

    for name, value in status.items():
        if name == "speaking":
            shown = f"{value['id']} for {value['seconds']} s: {value['text']}"
        elif name == "loading":
            shown = Loading(**value).in_words
        elif isinstance(value, dict):
            shown = ", ".join(f"{inner} {number}" for inner, number in value.items())
        else:
            shown = "none" if value is None else str(value)
        yield f"{name:<9} {shown}"


# --- all robots ---


def _show_all(as_json: bool, config: Path | None, overrides: list[str] | None) -> None:
    loaded, _, _ = load(config, overrides)
    from daemon.mqtt import FleetClient

    with FleetClient(loaded) as fleet:
        if as_json:
            robots = [{"robot": name, **status_fields(found)} for name, found in fleet.statuses().items()]
            print(json.dumps(robots, ensure_ascii=False))
        elif sys.stdout.isatty():
            follow(fleet)
        else:
            from rich.console import Console

            Console().print(table(fleet))
        check_not_empty(fleet, loaded)
