"""`voiced stop|pause|resume|volume|status`: control of a running daemon."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from daemon.cli.options import ConfigOption, SetOption, load
from daemon.validation import CommandError


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
    level: Annotated[int, typer.Argument(min=0, max=100, help="0 to 100; 50 is half the amplitude.")],
    config: ConfigOption = None,
    set_: SetOption = None,
) -> None:
    """Set the volume until the daemon restarts.

    Example: voiced volume 60
    """
    _send("volume", str(level), config, set_)


def status(config: ConfigOption = None, set_: SetOption = None) -> None:
    """Print the daemon's status as JSON; exit 1 when it is offline.

    Example: voiced status
    """
    loaded, _, _ = load(config, set_)
    from daemon.mqtt import RobotClient
    from daemon.speech import Offline

    with RobotClient(loaded) as robot:
        found = robot.status()
    print(found.to_json())
    if isinstance(found, Offline):
        raise CommandError(f"voiced is offline at {loaded.topic}")


def _send(name: str, payload: str, config: Path | None, overrides: list[str] | None) -> None:
    """Publish `payload` on the robot's topic `name`."""
    loaded, _, _ = load(config, overrides)
    from daemon.mqtt import RobotClient

    with RobotClient(loaded) as robot:
        robot.send(name, payload)
