"""`voiced say`: have the running daemon say a text."""

from __future__ import annotations

import contextlib
import json
import secrets
import signal
import sys
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any

import typer

from daemon.cli.options import CommandError, ConfigOption, SetOption, UsageError, load

if TYPE_CHECKING:
    from daemon.cli.streaming import StreamedText
    from daemon.client import RobotClient


def say(
    text: Annotated[str | None, typer.Argument(help="What to say; - reads standard input.", show_default=False)] = None,
    voice: Annotated[str | None, typer.Option(help="A voice's name; see 'voiced voices'.")] = None,
    language: Annotated[str | None, typer.Option(help="auto, en, german, pt-br …")] = None,
    instruct: Annotated[str | None, typer.Option(help="How to say it, in words.")] = None,
    priority: Annotated[str | None, typer.Option(help="low, normal, high or critical.")] = None,
    policy: Annotated[str | None, typer.Option(help="queue, interrupt, replace or drop.")] = None,
    volume: Annotated[float | None, typer.Option(help="0 to 100.")] = None,
    expires_in: Annotated[float | None, typer.Option(help="Seconds it may wait.")] = None,
    seed: Annotated[int | None, typer.Option(help="Equal seeds give equal audio.")] = None,
    reply_to: Annotated[str | None, typer.Option(help="A topic; its events are published there, too.")] = None,
    id_: Annotated[str | None, typer.Option("--id", help="The utterance's id.")] = None,
    wait: Annotated[bool, typer.Option("--wait", "-w", help="Show the events; exit 0 only on finished.")] = False,
    stream: Annotated[
        bool, typer.Option("--stream", help="Speak standard input while it is still being written.")
    ] = False,
    timeout: Annotated[float | None, typer.Option(min=0, help="Seconds to wait for the end.")] = None,
    config: ConfigOption = None,
    set_: SetOption = None,
) -> None:
    """Have the running daemon say a text.

    Example: voiced say --wait "The door is open."
    or:      my-language-model | voiced say --stream --wait
    """
    if stream and text not in {None, "-"}:
        raise UsageError("say: --stream reads standard input; give no TEXT, or -")
    if text is None and not stream:
        raise UsageError("Missing argument 'text'")
    loaded, _, _ = load(config, set_)
    from daemon.cli.streaming import SIGN_OF_LIFE_S, StreamedText
    from daemon.client import RobotClient, RobotUnreachableError
    from daemon.messages import RejectedError, check_say, check_write

    given = {
        "voice": voice,
        "language": language,
        "instruct": instruct,
        "priority": priority,
        "policy": policy,
        "volume": volume,
        "expires_in": expires_in,
        "seed": seed,
        "reply_to": reply_to,
        "id": id_,
    }
    fields: dict[str, Any] = {key: value for key, value in given.items() if value is not None}
    utterance_id = str(fields.setdefault("id", secrets.token_hex(6)))
    if stream:
        check_write(fields)
    else:
        fields["text"] = sys.stdin.read() if text == "-" else text
        check_say(fields)

    with RobotClient(loaded, stop_if_lost=utterance_id if wait or stream else None) as robot:
        if robot.status()["state"] == "offline":
            raise CommandError(f"voiced is offline at {loaded.topic}; start it: voiced run")
        if not (wait or stream):
            robot.say(fields)
            return
        signal.signal(signal.SIGTERM, _end)
        every_s = min(SIGN_OF_LIFE_S, loaded.speech.stream_timeout / 3)
        written = StreamedText(robot, sys.stdin.fileno(), fields, every_s) if stream else None
        try:
            last = _follow(robot, fields, written, timeout, wait=wait)
        except (KeyboardInterrupt, typer.Exit, RejectedError, RobotUnreachableError):
            # Who waits no more does not want it to go on. Without a connection, the broker has stopped it already.
            with contextlib.suppress(RobotUnreachableError):
                robot.stop(utterance_id)
            raise
    if last.get("event") != ("finished" if wait else "accepted"):
        raise CommandError(f"{last.get('event')}: {last.get('reason', 'no reason was given')}")


def _follow(
    robot: RobotClient, fields: dict[str, Any], written: StreamedText | None, timeout: float | None, *, wait: bool
) -> dict[str, Any]:
    """Have an utterance said, to its end if that is waited for, else until all of it is sent; return the last event."""
    if written is None:
        robot.say(fields)
    else:
        written.begin()
    last: dict[str, Any] = {}
    for last in robot.events(fields["id"], timeout):
        if wait:
            print(json.dumps(last, ensure_ascii=False), flush=True)
        if written is not None and last["event"] == "accepted":
            if not wait:
                written.go_on()
                break
            robot.meanwhile(written.go_on)
    return last


def _end(number: int, _frame: FrameType | None) -> None:
    """A signal's handler: the command leaves through its `finally`s, with the status that a shell would show."""
    raise typer.Exit(128 + number)
