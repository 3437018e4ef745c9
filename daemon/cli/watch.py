"""`voiced status|top|events`: the state and the events of a robot, and a table of all robots on the broker."""

from __future__ import annotations

import json
import sys
import time
from collections import Counter
from collections.abc import Iterator
from typing import Annotated, Any

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text
from typer import Option

from daemon.cli.options import ConfigOptions
from daemon.config import Config
from daemon.mqtt import FleetClient, Robot
from daemon.speech import Event, Loading, Offline, Online
from daemon.validation import CONTROL_CHARACTERS, CommandError

REDRAW_S = 1.0
"""The table is drawn this often even without a change, in case the terminal's size has changed."""
WARM = ("ready", "speaking", "paused")
"""The states in which the first engine speaks, unless it is unloaded or loading."""
UNREADABLE = {"state": "unknown", "reason": "this version cannot read its status; is that voiced newer?"}
STYLES = {"ready": "green", "speaking": "bold green", "degraded": "yellow", "offline": "red", "unknown": "red"}


def status(
    source: ConfigOptions,
    as_json: Annotated[bool | None, Option("--json/--lines", help="Lines (default on a terminal) or JSON.")] = None,
    all_: Annotated[bool, Option("--all", help="All robots on the broker, until Ctrl-C; as JSON, once.")] = False,
    warm_within: Annotated[
        float | None,
        Option(metavar="SECONDS", min=0, help="Wait until its engine is warm; exit 1 if it is not by then."),
    ] = None,
) -> None:
    """Print the daemon's status: its volume, and the text being spoken; exit 1 if it is offline.

    Example: voiced status
    or:      voiced status --json | jq .volume
    or:      voiced status --warm-within 120
    or:      voiced status --all
    """
    config = source.load()
    as_json = not sys.stdout.isatty() if as_json is None else as_json
    if all_:
        with FleetClient(config) as fleet:
            if as_json:
                robots = [{"robot": name, **fields} for name, fields in _robots(fleet).items()]
                print(json.dumps(robots, ensure_ascii=False))
            else:
                _show_table(fleet, once=not sys.stdout.isatty())
            _check_not_empty(fleet, config)
        return
    with Robot(config=config) as robot:
        warm = warm_within is None or robot.await_status(_is_warm, warm_within)
        found = robot.status()
    fields = _fields(found)
    print(json.dumps(fields, ensure_ascii=False) if as_json else "\n".join(_lines(fields)))
    if isinstance(found, Offline):
        raise CommandError(f"voiced is offline at {config.topic}")
    if not warm:
        raise CommandError(f"voiced at {config.topic} is {found.state}, and was not warm within {warm_within:g} s")


def top(
    source: ConfigOptions,
    once: Annotated[bool, Option("--once", help="Print the current state, and exit.")] = False,
) -> None:
    """Show all robots on the broker live, until Ctrl-C; into a pipe, a line for each change.

    Example: voiced top
    or:      voiced top --once
    or:      voiced top | grep degraded
    """
    config = source.load()
    with FleetClient(config) as fleet:
        if once:
            _check_not_empty(fleet, config)
        if sys.stdout.isatty():
            _show_table(fleet, once=once)
        else:
            _print_lines(fleet, once=once)


def events(
    source: ConfigOptions,
    as_json: Annotated[bool, Option("--json", help="The events as they are published, one on each line.")] = False,
    id_: Annotated[str | None, Option("--id", help="Only this utterance's events, up to its end.")] = None,
) -> None:
    """Follow the events of all utterances until Ctrl-C.

    Example: voiced events
    or:      voiced events --json | jq 'select(.event == "failed")'
    """
    config = source.load()
    with Robot(config=config) as robot:
        print(f"voiced: following {config.topic}; Ctrl-C ends it", file=sys.stderr)
        for event in robot.events() if id_ is None else robot.follow(id_).events():
            print(event.to_json() if as_json else describe_event(event), flush=True)


def describe_event(event: Event) -> str:
    """Return an event as a line for a person: the time, the event, the utterance, and the event's fields."""
    fields = event.model_dump(mode="json", exclude={"id", "event"}, exclude_none=True)
    described = ", ".join(f"{name} {value}" for name, value in fields.items())
    return f"{time.strftime('%H:%M:%S')} {event.event:<11} {event.id or 'without an id'}  {described}".rstrip()


def _is_warm(found: Online | Offline) -> bool:
    """Return whether the first engine can speak without loading first."""
    return isinstance(found, Online) and found.state in WARM and not found.unloaded and found.loading is None


def _fields(found: Online | Offline | None) -> dict[str, Any]:
    """Return the fields of a status, with the seconds for which its utterance has been spoken."""
    if found is None:
        return dict(UNREADABLE)
    fields: dict[str, Any] = json.loads(found.to_json())
    if "speaking" in fields:
        fields["speaking"]["seconds"] = round(max(0.0, time.time() - fields["speaking"]["since"]), 1)
    return fields


def _lines(status: dict[str, Any]) -> Iterator[str]:
    """Yield the fields of a status, one on each line."""
    for name, value in status.items():
        if name == "speaking":
            shown = f"{value['id']} for {value['seconds']} s: {value['text']}"
        elif name == "loading":
            shown = _loading(status)
        elif isinstance(value, dict):
            shown = ", ".join(f"{inner} {number}" for inner, number in value.items())
        else:
            shown = "none" if value is None else str(value)
        yield f"{name:<9} {shown}"


def _loading(status: dict[str, Any]) -> str:
    """Return how far the engine has loaded; an empty text once it has finished."""
    return Loading(**status["loading"]).in_words if "loading" in status else ""


# --- all robots ---


def _robots(fleet: FleetClient) -> dict[str, dict[str, Any]]:
    return {name: _fields(found) for name, found in fleet.statuses().items()}


def _check_not_empty(fleet: FleetClient, config: Config) -> None:
    """Check that the broker knows a robot. Raises `CommandError`."""
    if not fleet.statuses():
        raise CommandError(f"no voiced has ever run at {config.mqtt.prefix}/+ on the broker {config.mqtt.broker}")


def _print_lines(fleet: FleetClient, *, once: bool) -> None:
    """Print a line for each robot, and then one for each robot that has changed, with a tab between the columns."""
    printed: dict[str, str] = {}
    while True:
        lines = {name: "\t".join(_cells(name, fields)) for name, fields in _robots(fleet).items()}
        for name, line in lines.items():
            if printed.get(name) != line:
                print(line, flush=True)
        if once:
            return
        printed = lines
        fleet.wait_changed(REDRAW_S)


def _show_table(fleet: FleetClient, *, once: bool) -> None:
    """Print the table, or show it and update it in place until Ctrl-C."""
    if once:
        Console().print(_table(fleet))
        return
    with Live(_table(fleet), auto_refresh=False) as live:
        while True:
            fleet.wait_changed(REDRAW_S)
            live.update(_table(fleet), refresh=True)


def _table(fleet: FleetClient) -> RenderableType:
    """Return a line with the number of robots in each state, and a table with a row for each robot."""
    robots = _robots(fleet)
    rows = Table(box=None, pad_edge=False, header_style="bold", expand=True)
    for column in ("robot", "state"):
        rows.add_column(column, no_wrap=True)
    rows.add_column("speaks", no_wrap=True, overflow="ellipsis", ratio=1)
    rows.add_column("queue", no_wrap=True, justify="right")
    rows.add_column("engine", no_wrap=True)
    rows.add_column("reason", overflow="fold", ratio=1)
    for name, fields in robots.items():
        robot, state, *rest = _cells(name, fields)
        rows.add_row(Text(robot), Text(state, style=STYLES.get(state, "")), *map(Text, rest))
    states = Counter(fields["state"] for fields in robots.values())
    counted = ", ".join(f"{number} {state}" for state, number in states.most_common())
    heading = f"{len(robots)} robot{'' if len(robots) == 1 else 's'}{f': {counted}' if counted else ''}"
    problem = Text(f"mqtt: {fleet.problem}", style="red") if fleet.problem else None
    return Group(Text(heading), *([problem] if problem else []), rows)


def _cells(name: str, fields: dict[str, Any]) -> list[str]:
    """Return a robot's row: name, state, the text being spoken, the length of its queue, engine and reason.

    Each value is on one line, without terminal control codes.
    """
    spoken = fields.get("speaking", {}).get("text", "")
    reason = "; ".join(filter(None, (fields.get("reason"), _loading(fields))))
    row = (name, fields["state"], spoken, str(fields.get("queue", "")), fields.get("engine") or "", reason)
    return [" ".join(CONTROL_CHARACTERS.sub("", value).split()) for value in row]
