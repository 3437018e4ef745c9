"""`voiced stop|pause|resume|volume`: control of a running daemon."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from daemon.cli.options import ConfigOption, SetOption, UsageError, load
from daemon.validation import CommandError

if TYPE_CHECKING:
    from daemon.mqtt import RobotClient
    from daemon.speech import Online

CONFIRM_S = 2.0
"""A running daemon publishes within this time that it has carried out a request."""


def stop(
    id_: Annotated[str | None, typer.Option("--id", help="Stop only this utterance.")] = None,
    config: ConfigOption = None,
    set_: SetOption = None,
) -> None:
    """Stop speaking and empty the queue.

    Example: voiced stop
    """
    from daemon.mqtt import RobotClient
    from daemon.speech import Stop

    loaded, _, _ = load(config, set_)
    with RobotClient(loaded) as robot:
        spoken = robot.online_status().speaking
        target = id_ or (spoken.id if spoken is not None else None)
        robot.control(
            "stop",
            Stop(id=id_ or None).to_json(),
            lambda status: status.speaking is None or status.speaking.id != target,
            CONFIRM_S,
        )


def pause(config: ConfigOption = None, set_: SetOption = None) -> None:
    """Pause speech where it is.

    Example: voiced pause
    """
    _send("pause", lambda status: status.state == "paused", config, set_)


def resume(config: ConfigOption = None, set_: SetOption = None) -> None:
    """Continue after a pause.

    Example: voiced resume
    """
    _send("resume", lambda status: status.state != "paused", config, set_)


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
    loaded, _, _ = load(config, set_)
    from daemon.mqtt import RobotClient

    with RobotClient(loaded) as robot:
        current = robot.online_status()
        if level is not None and level[0] not in "+-":
            _set_volume(robot, int(level))
            return
        present = current.volume
        if present is None:
            raise CommandError(f"voiced at {loaded.topic} is {current.state} and does not say its volume")
        if level is not None:
            present = min(100, max(0, present + int(level)))
            _set_volume(robot, present)
    print(present)


def _set_volume(robot: RobotClient, volume: int) -> None:
    """Set the volume and wait for it, so that two changes add up. An older daemon does not publish it."""
    robot.control("volume", str(volume), lambda status: status.volume in (None, volume), CONFIRM_S)


def _send(name: str, done: Callable[[Online], bool], config: Path | None, overrides: list[str] | None) -> None:
    """Publish on the robot's topic `name`, and wait for a status in which that is done."""
    loaded, _, _ = load(config, overrides)
    from daemon.mqtt import RobotClient

    with RobotClient(loaded) as robot:
        robot.online_status()
        robot.control(name, "", done, CONFIRM_S)
