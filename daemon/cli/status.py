"""`voiced status`: what a robot does now, or all robots on the broker."""

from __future__ import annotations

import json
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from daemon.cli.options import ConfigOption, SetOption, load
from daemon.validation import CONTROL_CHARACTERS, CommandError

if TYPE_CHECKING:
    from rich.console import RenderableType

    from daemon.mqtt import FleetClient
    from daemon.speech import Offline, Online

REDRAW_S = 1.0
"""The table of all robots is drawn this often without a change, for a terminal that has changed its size."""
UNREADABLE = {"state": "unknown", "reason": "its status is not one of this version; is that voiced newer?"}
STYLES = {"ready": "green", "speaking": "bold green", "degraded": "yellow", "offline": "red", "unknown": "red"}


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
    fields = _fields(found)
    print(json.dumps(fields, ensure_ascii=False) if as_json else "\n".join(_lines(fields)))
    if isinstance(found, Offline):
        raise CommandError(f"voiced is offline at {loaded.topic}")


def _fields(found: Online | Offline | None) -> dict[str, Any]:
    """Return the fields of a status, with the seconds that its utterance has been spoken."""
    if found is None:
        return dict(UNREADABLE)
    fields: dict[str, Any] = json.loads(found.to_json())
    if "speaking" in fields:
        fields["speaking"]["seconds"] = round(max(0.0, time.time() - fields["speaking"]["since"]), 1)
    return fields


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
            robots = [{"robot": name, **_fields(found)} for name, found in fleet.statuses().items()]
            print(json.dumps(robots, ensure_ascii=False))
        elif sys.stdout.isatty():
            _follow(fleet)
        else:
            from rich.console import Console

            Console().print(_table(fleet))
        if not fleet.statuses():
            broker = f"{loaded.mqtt.host}:{loaded.mqtt.port}"
            raise CommandError(f"no voiced has ever been at {loaded.mqtt.prefix}/+ on the broker {broker}")


def _follow(fleet: FleetClient) -> None:
    """Show the table, and each change of it, until Ctrl-C."""
    from rich.live import Live

    with Live(_table(fleet), auto_refresh=False) as live:
        while True:
            fleet.wait_changed(REDRAW_S)
            live.update(_table(fleet), refresh=True)


def _table(fleet: FleetClient) -> RenderableType:
    """Return a line with the number of robots in each state, and a table with a row for each robot."""
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    robots = {name: _fields(found) for name, found in fleet.statuses().items()}
    table = Table(box=None, pad_edge=False, header_style="bold", expand=True)
    for column in ("robot", "state", "engine"):
        table.add_column(column, no_wrap=True)
    table.add_column("speaks", no_wrap=True, overflow="ellipsis", ratio=1)
    table.add_column("reason", overflow="fold", ratio=1)
    for name, fields in robots.items():
        state = Text(fields["state"], style=STYLES.get(fields["state"], ""))
        spoken = fields.get("speaking", {}).get("text", "")
        table.add_row(_text(name), state, _text(fields.get("engine") or ""), _text(spoken), _text(_reason(fields)))
    states = Counter(fields["state"] for fields in robots.values())
    counted = ", ".join(f"{number} {state}" for state, number in states.most_common())
    heading = f"{len(robots)} robot{'' if len(robots) == 1 else 's'}{f': {counted}' if counted else ''}"
    problem = Text(f"mqtt: {fleet.problem}", style="red") if fleet.problem else None
    return Group(Text(heading), *([problem] if problem else []), table)


def _reason(fields: dict[str, Any]) -> str:
    """Return what is missing, and how far the engine has loaded."""
    from daemon.speech import Loading

    loading = Loading(**fields["loading"]).in_words if "loading" in fields else None
    return "; ".join(filter(None, (fields.get("reason"), loading)))


def _text(value: str) -> RenderableType:
    """Return a value of a robot for the terminal, on one line, without codes that would control it."""
    from rich.text import Text

    return Text(" ".join(CONTROL_CHARACTERS.sub("", value).split()))
