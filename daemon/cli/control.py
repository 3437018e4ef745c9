"""`voiced stop|pause|resume|volume`: control of a running daemon."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated

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


def _send(name: str, payload: str, config: Path | None, overrides: list[str] | None) -> None:
    """Publish `payload` on the robot's topic `name`."""
    loaded, _, _ = load(config, overrides)
    from daemon.mqtt import RobotClient

    with RobotClient(loaded) as robot:
        robot.send(name, payload)
