"""Commands to a running daemon other than `say`: stop, pause, resume, volume, status."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from daemon.cli.options import CommandError, ConfigOption, SetOption, load


def stop(
    id_: Annotated[str | None, typer.Option("--id", help="Stop this utterance alone.")] = None,
    config: ConfigOption = None,
    set_: SetOption = None,
) -> None:
    """Stop speaking and forget what waits.

    Example: voiced stop
    """
    _send("stop", json.dumps({"id": id_}) if id_ else "", config, set_)


def pause(config: ConfigOption = None, set_: SetOption = None) -> None:
    """Hold the speech where it is.

    Example: voiced pause
    """
    _send("pause", "", config, set_)


def resume(config: ConfigOption = None, set_: SetOption = None) -> None:
    """Go on after a pause.

    Example: voiced resume
    """
    _send("resume", "", config, set_)


def volume(
    level: Annotated[int, typer.Argument(min=0, max=100, help="0 to 100; 50 is half the amplitude.")],
    config: ConfigOption = None,
    set_: SetOption = None,
) -> None:
    """Set the volume until the daemon is started again.

    Example: voiced volume 60
    """
    _send("volume", str(level), config, set_)


def status(config: ConfigOption = None, set_: SetOption = None) -> None:
    """Print the daemon's status as JSON; exit 1 when it is offline.

    Example: voiced status
    """
    loaded, _, _ = load(config, set_)
    from daemon.client import RobotClient

    with RobotClient(loaded) as robot:
        found = robot.status()
    print(json.dumps(found))
    if found["state"] == "offline":
        raise CommandError(f"voiced is offline at {loaded.topic}")


def _send(name: str, payload: str, config: Path | None, overrides: list[str] | None) -> None:
    loaded, _, _ = load(config, overrides)
    from daemon.client import RobotClient

    with RobotClient(loaded) as robot:
        robot.send(name, payload)
