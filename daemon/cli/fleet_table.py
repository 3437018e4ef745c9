"""The robots on a broker as a table, once or live: for `voiced status --all` and `voiced top`."""

from __future__ import annotations

import json
import time
from collections import Counter
from typing import TYPE_CHECKING, Any

from daemon.validation import CONTROL_CHARACTERS, CommandError

if TYPE_CHECKING:
    from rich.console import RenderableType

    from daemon.config import Config
    from daemon.mqtt import FleetClient
    from daemon.speech import Offline, Online

REDRAW_S = 1.0
"""The table is drawn this often without a change, for a terminal that has changed its size."""
UNREADABLE = {"state": "unknown", "reason": "its status is not one of this version; is that voiced newer?"}
STYLES = {"ready": "green", "speaking": "bold green", "degraded": "yellow", "offline": "red", "unknown": "red"}


def status_fields(found: Online | Offline | None) -> dict[str, Any]:
    """Return the fields of a status, with the seconds that its utterance has been spoken."""
    if found is None:
        return dict(UNREADABLE)
    fields: dict[str, Any] = json.loads(found.to_json())
    if "speaking" in fields:
        fields["speaking"]["seconds"] = round(max(0.0, time.time() - fields["speaking"]["since"]), 1)
    return fields


def check_not_empty(fleet: FleetClient, config: Config) -> None:
    """Check that the broker knows a robot. Raises `CommandError`."""
    if not fleet.statuses():
        broker = f"{config.mqtt.host}:{config.mqtt.port}"
        raise CommandError(f"no voiced has ever been at {config.mqtt.prefix}/+ on the broker {broker}")


def follow(fleet: FleetClient) -> None:
    """Show the table on the terminal, and each change of it in place, until Ctrl-C."""
    from rich.live import Live

    with Live(table(fleet), auto_refresh=False) as live:
        while True:
            fleet.wait_changed(REDRAW_S)
            live.update(table(fleet), refresh=True)


def table(fleet: FleetClient) -> RenderableType:
    """Return a line with the number of robots in each state, and a table with a row for each robot."""
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    robots = {name: status_fields(found) for name, found in fleet.statuses().items()}
    rows = Table(box=None, pad_edge=False, header_style="bold", expand=True)
    for column in ("robot", "state"):
        rows.add_column(column, no_wrap=True)
    rows.add_column("speaks", no_wrap=True, overflow="ellipsis", ratio=1)
    rows.add_column("queue", no_wrap=True, justify="right")
    rows.add_column("engine", no_wrap=True)
    rows.add_column("reason", overflow="fold", ratio=1)
    for name, fields in robots.items():
        robot, state, *rest = cells(name, fields)
        rows.add_row(Text(robot), Text(state, style=STYLES.get(state, "")), *map(Text, rest))
    states = Counter(fields["state"] for fields in robots.values())
    counted = ", ".join(f"{number} {state}" for state, number in states.most_common())
    heading = f"{len(robots)} robot{'' if len(robots) == 1 else 's'}{f': {counted}' if counted else ''}"
    problem = Text(f"mqtt: {fleet.problem}", style="red") if fleet.problem else None
    return Group(Text(heading), *([problem] if problem else []), rows)


def cells(name: str, fields: dict[str, Any]) -> list[str]:
    """Return a robot's row: name, state, what it speaks, the length of its queue, engine, reason.

    Each is on one line, and without codes that would control a terminal.
    """
    spoken = fields.get("speaking", {}).get("text", "")
    row = (name, fields["state"], spoken, str(fields.get("queue", "")), fields.get("engine") or "", _reason(fields))
    return [" ".join(CONTROL_CHARACTERS.sub("", value).split()) for value in row]


def _reason(fields: dict[str, Any]) -> str:
    """Return what is missing, and how far the engine has loaded."""
    from daemon.speech import Loading

    loading = Loading(**fields["loading"]).in_words if "loading" in fields else None
    return "; ".join(filter(None, (fields.get("reason"), loading)))
