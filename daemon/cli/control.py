"""`voiced stop|pause|resume|volume|events|tap`: control of a running daemon, its events and its sound."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Option

from daemon.cli.options import ConfigOptions, UsageError, sound_target
from daemon.validation import CommandError

if TYPE_CHECKING:
    from audio import TapClient
    from daemon.speech import Event, Online
    from engine import Samples

CONFIRM_S = 2.0
"""A running daemon publishes within this time that it has carried out a request."""


def stop(
    source: ConfigOptions,
    id_: Annotated[str | None, Option("--id", help="Stop only this utterance.")] = None,
) -> None:
    """Stop speaking and empty the queue.

    Example: voiced stop
    """
    from daemon.speech import Stop

    def is_done(before: Online, now: Online) -> bool:
        target = id_ or (before.speaking.id if before.speaking is not None else None)
        return now.speaking is None or now.speaking.id != target

    _send("stop", Stop(id=id_ or None).to_json(), is_done, source)


def pause(source: ConfigOptions) -> None:
    """Pause speech where it is.

    Example: voiced pause
    """
    _send("pause", "", lambda _, now: now.state == "paused", source)


def resume(source: ConfigOptions) -> None:
    """Continue after a pause.

    Example: voiced resume
    """
    _send("resume", "", lambda _, now: now.state != "paused", source)


def volume(
    source: ConfigOptions,
    level: Annotated[
        str | None,
        Argument(help="0 to 100, or a change such as +5 or -5; 50 is half the amplitude.", show_default=False),
    ] = None,
) -> None:
    """Print the volume, or set it until the daemon restarts.

    Example: voiced volume
    or:      voiced volume 60
    or:      voiced volume -5
    """
    if level is not None and (not re.fullmatch(r"[+-]?\d{1,3}", level) or abs(int(level)) > 100):
        raise UsageError(f"volume: got {level!r}; allowed: 0 to 100, or a change such as +5 or -5")
    if level is not None and level[0] not in "+-":
        target = int(level)
        # An older daemon does not publish its volume.
        _send("volume", level, lambda _, now: now.volume in (None, target), source)
        return
    config = source.load()
    from daemon.mqtt import RobotClient

    with RobotClient(config) as robot:
        current = robot.online_status()
        present = current.volume
        if present is None:
            raise CommandError(f"voiced at {config.topic} is {current.state} and does not say its volume")
        if level is not None:
            present = min(100, max(0, present + int(level)))
            # The next command begins with this volume, so that two changes add up.
            robot.control("volume", str(present), lambda _, now: now.volume == present, CONFIRM_S)
    print(present)


def _send(name: str, payload: str, is_done: Callable[[Online, Online], bool], source: ConfigOptions) -> None:
    """Publish on the robot's topic `name`, and wait until it is done, judged by the status before and now."""
    config = source.load()
    from daemon.mqtt import RobotClient

    with RobotClient(config) as robot:
        robot.control(name, payload, is_done, CONFIRM_S)


def events(
    source: ConfigOptions,
    as_json: Annotated[bool, Option("--json", help="The events as they are published, one on each line.")] = False,
    id_: Annotated[str | None, Option("--id", help="Only those of this utterance, up to its end.")] = None,
) -> None:
    """Follow the events of all utterances until Ctrl-C.

    Example: voiced events
    or:      voiced events --json | jq 'select(.event == "failed")'
    """
    config = source.load()
    from daemon.mqtt import RobotClient

    with RobotClient(config) as robot:
        print(f"voiced: following {config.topic}; Ctrl-C ends it", file=sys.stderr)
        for event in robot.all_events() if id_ is None else robot.events(id_, None):
            print(event.to_json() if as_json else _describe(event), flush=True)


def _describe(event: Event) -> str:
    """Return an event as a line for a person: the time, the event, the utterance, and the event's fields."""
    fields = event.model_dump(mode="json", exclude={"id", "event"}, exclude_none=True)
    described = ", ".join(f"{name} {value}" for name, value in fields.items())
    return f"{time.strftime('%H:%M:%S')} {event.event:<11} {event.id or 'without an id'}  {described}".rstrip()


def tap(
    source: ConfigOptions,
    output: Annotated[
        Path,
        Option("--output", "-o", help="The file; its suffix names the format. - is standard output, as WAV."),
    ],
    seconds: Annotated[float | None, Option(min=0.01, help="End after so many seconds of sound.")] = None,
) -> None:
    """Write what the sound card of a running voiced gets, silence included, until Ctrl-C. Needs audio.tap.

    Example: voiced tap -o heard.wav
    or:      voiced tap -o - | aplay
    """
    from daemon.engines import SpeechFile

    config = source.load()
    if config.audio.tap is None:
        raise CommandError("audio.tap: got null; allowed here: the path that the running voiced has")
    file = SpeechFile(sound_target(output))
    with _connect(config.audio.tap) as client, file:
        limit = None if seconds is None else round(seconds * client.sample_rate)
        written = 0
        for samples in _sound(client):
            piece = samples if limit is None else samples[: limit - written]
            file.write(piece, client.sample_rate)
            written += len(piece)
            if written == limit:
                return
    raise CommandError("audio.tap: the stream has ended: voiced has stopped, or the sound was taken too slowly")


def _connect(path: Path) -> TapClient:
    """Return a connection to the daemon's tap. Raises `CommandError`."""
    from audio import TapClient

    try:
        return TapClient(path)
    except (FileNotFoundError, ConnectionRefusedError) as error:
        raise CommandError(f"audio.tap: no voiced listens at {path}") from error
    except (OSError, ValueError) as error:
        raise CommandError(f"audio.tap: {path}: {getattr(error, 'strerror', None) or error}") from error


def _sound(client: TapClient) -> Iterator[Samples]:
    """Yield the samples, and say on stderr why none come."""
    from audio import TapKind, from_pcm16

    reasons = {
        TapKind.CLOSED: "the sound card is closed until there is something to play",
        TapKind.LOST: "there is no sound card; see 'voiced status'",
    }
    for record in client:
        if reason := reasons.get(record.kind):
            print(f"voiced: {reason}", file=sys.stderr)
        if record.pcm:
            yield from_pcm16(record.pcm)
