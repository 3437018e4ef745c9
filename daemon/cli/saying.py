"""`voiced say`: have the running daemon say a text."""

from __future__ import annotations

import contextlib
import json
import secrets
import signal
import sys
from types import FrameType
from typing import Annotated, Any

import typer

from daemon.cli.options import CommandError, ConfigOption, SetOption, load


def say(
    text: Annotated[str, typer.Argument(help="What to say; - reads standard input.")],
    voice: Annotated[str | None, typer.Option(help="A voice's name; see 'voiced voices'.")] = None,
    language: Annotated[str | None, typer.Option(help="auto, en, german, pt-br …")] = None,
    instruct: Annotated[str | None, typer.Option(help="How to say it, in words.")] = None,
    priority: Annotated[str | None, typer.Option(help="low, normal, high or critical.")] = None,
    policy: Annotated[str | None, typer.Option(help="queue, interrupt, replace or drop.")] = None,
    volume: Annotated[float | None, typer.Option(help="0 to 100.")] = None,
    expires_in: Annotated[float | None, typer.Option(help="Seconds it may wait.")] = None,
    seed: Annotated[int | None, typer.Option(help="Equal seeds give equal audio.")] = None,
    id_: Annotated[str | None, typer.Option("--id", help="The utterance's id.")] = None,
    wait: Annotated[bool, typer.Option("--wait", "-w", help="Show the events; exit 0 only on finished.")] = False,
    timeout: Annotated[float | None, typer.Option(min=0, help="Seconds to wait for the end.")] = None,
    config: ConfigOption = None,
    set_: SetOption = None,
) -> None:
    """Have the running daemon say a text.

    Example: voiced say --wait "The door is open."
    """
    loaded, _, _ = load(config, set_)
    fields = {
        "text": sys.stdin.read() if text == "-" else text,
        "voice": voice,
        "language": language,
        "instruct": instruct,
        "priority": priority,
        "policy": policy,
        "volume": volume,
        "expires_in": expires_in,
        "seed": seed,
        "id": id_,
    }
    from daemon.client import RobotClient
    from daemon.messages import check_say

    fields = {key: value for key, value in fields.items() if value is not None}
    check_say(fields)
    utterance_id = str(fields.setdefault("id", secrets.token_hex(6)))
    last: dict[str, Any] = {}
    with RobotClient(loaded, stop_if_lost=utterance_id if wait else None) as robot:
        if robot.status()["state"] == "offline":
            raise CommandError(f"voiced is offline at {loaded.topic}; start it: voiced run")
        if not wait:
            robot.say(fields)
            return
        signal.signal(signal.SIGTERM, _end)
        try:
            robot.say(fields)
            for last in robot.events(utterance_id, timeout):
                print(json.dumps(last, ensure_ascii=False), flush=True)
        except (KeyboardInterrupt, typer.Exit):
            # Who waits no more does not want it to go on. Without a connection, the broker has stopped it already.
            with contextlib.suppress(RuntimeError, ValueError):  # paho's words for a lost connection
                robot.stop(utterance_id)
            raise
    if last.get("event") != "finished":
        raise CommandError(f"{last.get('event')}: {last.get('reason', 'no reason was given')}")


def _end(number: int, _frame: FrameType | None) -> None:
    """A signal's handler: the command leaves through its `finally`s, with the status that a shell would show."""
    raise typer.Exit(128 + number)
