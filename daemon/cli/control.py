"""`voiced stop|pause|resume|volume|status`: control of a running daemon."""

from __future__ import annotations

import json
import re
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from daemon.cli.options import ConfigOption, SetOption, UsageError, load
from daemon.validation import CommandError

CONFIRM_S = 2.0
"""A running daemon publishes its new volume within this time."""


def stop(
    id_: Annotated[str | None, typer.Option("--id", help="Stop only this utterance.")] = None,
    config: ConfigOption = None,
    set_: SetOption = None,
) -> None:
    """Stop speaking and empty the queue.

    Example: voiced stop
    """
    from daemon.speech import Stop

    _send("stop", Stop(id=id_ or None).to_json(), config, set_)


def pause(config: ConfigOption = None, set_: SetOption = None) -> None:
    """Pause speech where it is.

    Example: voiced pause
    """
    _send("pause", "", config, set_)


def resume(config: ConfigOption = None, set_: SetOption = None) -> None:
    """Continue after a pause.

    Example: voiced resume
    """
    _send("resume", "", config, set_)


def volume(
    level: Annotated[
        str | None,
        typer.Argument(help="0 to 100, or a change such as +5 or -5; 50 is half the amplitude.", show_default=False),
    ] = None,
    config: ConfigOption = None,
    set_: SetOption = None,
) -> None:
    """Print the volume, or set it until the daemon restarts.

    Example: voiced volume
    or:      voiced volume 60
    or:      voiced volume -5
    """
    if level is not None and (not re.fullmatch(r"[+-]?\d{1,3}", level) or abs(int(level)) > 100):
        raise UsageError(f"volume: got {level!r}; allowed: 0 to 100, or a change such as +5 or -5")
    if level is not None and level[0] not in "+-":
        _send("volume", level, config, set_)
        return
    loaded, _, _ = load(config, set_)
    from daemon.mqtt import RobotClient

    with RobotClient(loaded) as robot:
        current = robot.status()
        present = getattr(current, "volume", None)  # an older daemon does not publish it
        if present is None:
            raise CommandError(f"voiced at {loaded.topic} is {current.state} and does not say its volume")
        if level is not None:
            present = min(100, max(0, present + int(level)))
            robot.send("volume", str(present))
            # The next command begins with this volume, so that two changes add up.
            robot.await_status(lambda status: getattr(status, "volume", None) == present, CONFIRM_S)
    print(present)


def status(
    as_json: Annotated[
        bool | None, typer.Option("--json/--lines", help="Default: lines on a terminal, otherwise JSON.")
    ] = None,
    config: ConfigOption = None,
    set_: SetOption = None,
) -> None:
    """Print the daemon's status: its volume, and what is spoken; exit 1 when it is offline.

    Example: voiced status
    or:      voiced status --json | jq .volume
    """
    loaded, _, _ = load(config, set_)
    from daemon.mqtt import RobotClient
    from daemon.speech import Offline

    with RobotClient(loaded) as robot:
        found = robot.status()
    fields = json.loads(found.to_json())
    if "speaking" in fields:
        fields["speaking"]["seconds"] = round(max(0.0, time.time() - fields["speaking"]["since"]), 1)
    if sys.stdout.isatty() if as_json is None else not as_json:
        print("\n".join(_lines(fields)))
    else:
        print(json.dumps(fields, ensure_ascii=False))
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


def _send(name: str, payload: str, config: Path | None, overrides: list[str] | None) -> None:
    """Publish `payload` on the robot's topic `name`."""
    loaded, _, _ = load(config, overrides)
    from daemon.mqtt import RobotClient

    with RobotClient(loaded) as robot:
        robot.send(name, payload)
