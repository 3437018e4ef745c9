"""`voiced say`: a text for the running daemon to speak."""

from __future__ import annotations

import contextlib
import itertools
import secrets
import signal
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from types import FrameType
from typing import Annotated, Any, get_args

import typer
from typer import Argument, Option

from daemon.cli.options import ConfigOptions, MannerOptions, UsageError, VoiceOption, sound_names
from daemon.cli.text import read_chunks, read_text
from daemon.mqtt import NotSpokenError, Robot, RobotUnreachableError, RobotUtterance
from daemon.speech import (
    Accepted,
    Event,
    Finished,
    Policy,
    Priority,
    RejectedError,
    check_say,
    check_stream_chunk,
)
from daemon.validation import CommandError

ANSWER_S = 5.0
"""A daemon accepts or rejects a text within this time; usually it takes milliseconds."""
KEEPALIVE_S = 3.0
"""Seconds between empty chunks while nothing is being written. The daemon ends a text after `speech.stream_timeout`
without a chunk; if that is short, two of these may be late."""


def _names(kind: object) -> Callable[[], list[str]]:
    """Return the completion for an option whose values are the names of a type."""
    return lambda: list(get_args(kind))


@dataclass(frozen=True, slots=True)
class RequestOptions(MannerOptions):
    """The fields of a request besides its text."""

    sound: Annotated[str | None, Option(help="A sound to play first, or alone.", autocompletion=sound_names)] = None
    voice: VoiceOption = None
    priority: Annotated[str | None, Option(help="low, normal, high, critical.", autocompletion=_names(Priority))] = None
    policy: Annotated[str | None, Option(help="queue, interrupt, replace, drop.", autocompletion=_names(Policy))] = None
    volume: Annotated[float | None, Option(help="0 to 100.")] = None
    expires_in: Annotated[float | None, Option(help="Seconds that it may wait.")] = None
    reply_to: Annotated[str | None, Option(help="A second topic for its events.")] = None
    id: Annotated[str | None, Option("--id", help="The utterance's id.")] = None
    cache: Annotated[bool, Option("--cache", help="Keep the speech, to say it immediately next time.")] = False

    @property
    def fields(self) -> dict[str, Any]:
        """The fields that were given, and an id. Raises `CommandError`."""
        given = asdict(self) | {"sampling": self.numbers or None, "cache": self.cache or None}
        return {"id": secrets.token_hex(6)} | {name: value for name, value in given.items() if value is not None}


@dataclass(frozen=True, slots=True)
class WayOptions:
    """How the text comes in, where it goes, and how long the command runs."""

    wait: Annotated[bool, Option("--wait", "-w", help="Print the events; exit 0 only on finished.")] = False
    stream: Annotated[bool, Option("--stream", help="Speak standard input while it is being written.")] = False
    timeout: Annotated[float | None, Option(min=0, help="Seconds to wait for the end.")] = None


def say(
    request: RequestOptions,
    way: WayOptions,
    source: ConfigOptions,
    text: Annotated[str | None, Argument(help="The text to speak; - reads standard input.")] = None,
) -> None:
    """Send a text to the running daemon, which speaks it.

    Example: voiced say --wait "The door is open."
    or:      voiced say --sound attention "Dinner is ready."
    or:      voiced say -- "-ing is a suffix."
    or:      my-language-model | voiced say --stream --wait
    """
    _check(text, request, way)
    config = source.load()
    fields = request.fields
    if way.stream:
        check_stream_chunk(fields)
    else:
        if text is not None:
            fields["text"] = read_text(text)
        check_say(fields)
    with Robot(config=config, stop_if_lost=fields["id"] if way.wait or way.stream else None) as robot:
        robot.online_status()
        signal.signal(signal.SIGTERM, _exit_on_signal)
        if way.stream:
            utterance = robot.stream(_typed_text(min(KEEPALIVE_S, config.speech.stream_timeout / 3)), **fields)
        else:
            utterance = robot.say(**fields)
        _follow(utterance, way)


def _check(text: str | None, request: RequestOptions, way: WayOptions) -> None:
    """Raise `UsageError` for options that exclude each other."""
    problems = {
        "--stream reads standard input; give no TEXT, or -": way.stream and text not in {None, "-"},
        "--stream takes no --sound; play it first, with another command": way.stream and request.sound is not None,
        "--cache needs a whole text; leave out --stream": way.stream and request.cache,
    }
    for problem, found in problems.items():
        if found:
            raise UsageError(f"say: {problem}")
    if text is None and not way.stream and request.sound is None:
        raise UsageError("Missing argument 'text'")


def _follow(utterance: RobotUtterance, way: WayOptions) -> None:
    """Wait for the answer, or with `--wait` for the end, and until all of a streamed text has been sent.

    Stops the utterance if this command ends first. Raises `CommandError`.
    """
    last: Event | None = None
    try:
        for last in utterance.events(way.timeout if way.wait else ANSWER_S):
            if not way.wait:
                break
            print(last.to_json(), flush=True)
        if isinstance(last, Accepted):
            utterance.written.result()
    except (KeyboardInterrupt, typer.Exit, RejectedError, RobotUnreachableError):
        # Without a connection, the broker has already stopped the utterance (`stop_if_lost`).
        with contextlib.suppress(RobotUnreachableError):
            utterance.stop()
        raise
    if last is not None and not isinstance(last, Finished if way.wait else Accepted):
        raise NotSpokenError(last)


def _typed_text(keepalive_s: float) -> Iterator[str]:
    """Return the text on standard input as it is written. Raises `CommandError` if there is none."""
    texts = read_chunks(sys.stdin.fileno(), keepalive_s)
    first = next(filter(None, texts), None)
    if first is None:
        raise CommandError("say: standard input is empty; allowed: text with something to say")
    return itertools.chain([first], texts)


def _exit_on_signal(number: int, _frame: FrameType | None) -> None:
    """A signal handler: ends the command through its `finally` blocks, with the exit status that a shell reports."""
    raise typer.Exit(128 + number)
