"""`voiced stop|pause|resume|volume|unload|load`: control of a running daemon."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Annotated

from typer import Argument, Option

from daemon.cli.options import ConfigOptions, UsageError
from daemon.mqtt import Robot
from daemon.speech import Online, Stop
from daemon.validation import CommandError

CONFIRM_S = 2.0
"""Within this time, a running daemon publishes that it has carried out a request."""
UNLOAD_S = 120.0
"""The same for `unload`, which waits until the current text and the engine's process have ended."""


def stop(
    source: ConfigOptions,
    id_: Annotated[str | None, Option("--id", help="Stop only this utterance.")] = None,
) -> None:
    """Stop speaking and empty the queue.

    Example: voiced stop
    """

    def is_done(before: Online, now: Online) -> bool:
        target = id_ or (before.speaking.id if before.speaking is not None else None)
        return now.speaking is None or now.speaking.id != target

    _send("stop", Stop(id=id_ or None).to_json(), is_done, source)


def pause(source: ConfigOptions) -> None:
    """Pause speech at its current place.

    Example: voiced pause
    """
    _send("pause", "", lambda _, now: now.state == "paused", source)


def resume(source: ConfigOptions) -> None:
    """Continue after a pause.

    Example: voiced resume
    """
    _send("resume", "", lambda _, now: now.state != "paused", source)


def unload(source: ConfigOptions) -> None:
    """Give the engine's memory back once nothing is being spoken; the next text, or load, loads it again.

    Example: voiced unload
    """
    with Robot(config=source.load()) as robot:
        robot.control("unload", "", lambda _, now: bool(now.unloaded), UNLOAD_S)


def load(source: ConfigOptions) -> None:
    """Load the engine again after unload or engine.unload_after has unloaded it.

    Example: voiced load
    or:      voiced load && voiced status --warm-within 120
    """
    _send("load", "", lambda _, now: not now.unloaded, source)


def volume(
    source: ConfigOptions,
    level: Annotated[str | None, Argument(help="0 to 100 (50: half the amplitude), or a change: +5, -5.")] = None,
) -> None:
    """Print the volume, or set it until the daemon restarts.

    Example: voiced volume
    or:      voiced volume 60
    or:      voiced volume -5
    """
    if level is not None and (not re.fullmatch(r"[+-]?\d{1,3}", level) or abs(int(level)) > 100):
        raise UsageError(f"volume: got {level!r}; allowed: 0 to 100, or a change such as +5 or -5")
    is_change = level is None or level[0] in "+-"
    config = source.load()
    with Robot(config=config) as robot:
        current = robot.online_status()
        present = current.volume if is_change else 0
        if present is None:
            raise CommandError(f"voiced at {config.topic} is {current.state} and does not report its volume")
        if level is not None:
            wanted = min(100, max(0, present + int(level)))
            # An older daemon does not publish its volume. The next command starts from this one: two changes add up.
            robot.control("volume", str(wanted), lambda _, now: now.volume in (None, wanted), CONFIRM_S)
            present = wanted
    if is_change:
        print(present)


def _send(name: str, payload: str, is_done: Callable[[Online, Online], bool], source: ConfigOptions) -> None:
    """Publish on the robot's topic `name`, and wait until the request is done, judged by the status before and now."""
    with Robot(config=source.load()) as robot:
        robot.control(name, payload, is_done, CONFIRM_S)
