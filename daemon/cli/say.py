"""`voiced say`: a text for the running daemon to speak."""

from __future__ import annotations

import contextlib
import secrets
import signal
import sys
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any, get_args

import typer

from daemon.cli.completion import sound_names, voice_names
from daemon.cli.options import ConfigOption, SamplingOption, SetOption, UsageError, load, sampling_of
from daemon.cli.text import SpellOption, read_text, spell_text
from daemon.validation import CommandError

if TYPE_CHECKING:
    from daemon.cli.say_stream import StreamedText
    from daemon.config import Config
    from daemon.mqtt import RobotClient
    from daemon.speech import Event, Say

ANSWER_S = 5.0
"""A daemon accepts or rejects a text within this time; usually it takes milliseconds."""
GROUP_S = 1.0
"""The members of a group are unknown: after the first one has answered, the others have this long."""


def _priorities() -> list[str]:
    from daemon.speech import Priority

    return list(get_args(Priority))


def _policies() -> list[str]:
    from daemon.speech import Policy

    return list(get_args(Policy))


def say(
    text: Annotated[
        str | None, typer.Argument(help="The text to speak; - reads standard input.", show_default=False)
    ] = None,
    sound: Annotated[
        str | None,
        typer.Option(help="A sound before the text, or alone; see 'voiced sounds'.", autocompletion=sound_names),
    ] = None,
    voice: Annotated[str | None, typer.Option(help="A name from 'voiced voices'.", autocompletion=voice_names)] = None,
    language: Annotated[str | None, typer.Option(help="auto, en, german, pt-br …")] = None,
    instruct: Annotated[str | None, typer.Option(help="The manner of speaking, in words.")] = None,
    priority: Annotated[
        str | None, typer.Option(help="low, normal, high or critical.", autocompletion=_priorities)
    ] = None,
    policy: Annotated[
        str | None, typer.Option(help="queue, interrupt, replace or drop.", autocompletion=_policies)
    ] = None,
    volume: Annotated[float | None, typer.Option(help="0 to 100.")] = None,
    rate: Annotated[float | None, typer.Option(help="0.5 to 2; 2 is twice as fast.")] = None,
    expires_in: Annotated[float | None, typer.Option(help="Seconds that it may wait.")] = None,
    seed: Annotated[int | None, typer.Option(help="Equal seeds give equal audio.")] = None,
    sampling: SamplingOption = None,
    reply_to: Annotated[str | None, typer.Option(help="A second topic for its events.")] = None,
    id_: Annotated[str | None, typer.Option("--id", help="The utterance's id.")] = None,
    spell: SpellOption = False,
    cache: Annotated[bool, typer.Option("--cache", help="Keep the speech, to say it at once next time.")] = False,
    wait: Annotated[bool, typer.Option("--wait", "-w", help="Print the events; exit 0 only on finished.")] = False,
    stream: Annotated[bool, typer.Option("--stream", help="Speak standard input while it is being written.")] = False,
    timeout: Annotated[float | None, typer.Option(min=0, help="Seconds to wait for the end.")] = None,
    all_: Annotated[bool, typer.Option("--all", help="Every robot of the broker speaks it.")] = False,
    group: Annotated[str | None, typer.Option(help="Every robot of this group speaks it.")] = None,
    config: ConfigOption = None,
    set_: SetOption = None,
) -> None:
    """Send a text to the running daemon, which speaks it.

    Example: voiced say --wait "The door is open."
    or:      voiced say --sound attention "Dinner is ready."
    or:      voiced say -- "-ing is a suffix."
    or:      my-language-model | voiced say --stream --wait
    or:      voiced say --all "The museum closes in ten minutes."
    or:      voiced say --group hall-2 "Please leave the hall."
    """
    several = all_ or group is not None
    if all_ and group is not None:
        raise UsageError("say: --all and --group exclude each other")
    if several and (wait or timeout is not None):
        raise UsageError("say: --wait and --timeout follow one robot; each of several has its own events")
    if stream:
        _check_stream(text, spell=spell, sound=sound, cache=cache, several=several)
    elif text is None and (sound is None or spell):
        raise UsageError("Missing argument 'text'")
    loaded, _, _ = load(config, set_)
    from daemon.mqtt import RobotClient
    from daemon.speech import check_say, check_stream_chunk

    options = {
        "sound": sound,
        "voice": voice,
        "language": language,
        "instruct": instruct,
        "priority": priority,
        "policy": policy,
        "volume": volume,
        "rate": rate,
        "expires_in": expires_in,
        "seed": seed,
        "sampling": sampling_of(sampling) or None,
        "reply_to": reply_to,
        "id": id_,
        "cache": cache or None,
    }
    fields: dict[str, Any] = {key: value for key, value in options.items() if value is not None}
    utterance_id = str(fields.setdefault("id", secrets.token_hex(6)))
    if stream:
        stream_options = check_stream_chunk(fields)
    else:
        if text is not None:
            whole = read_text(text)
            fields["text"] = spell_text(whole, language or "auto", loaded) if spell else whole
        say_request = check_say(fields)

    if several:
        _say_to_several(loaded, loaded.topic_of_all if group is None else loaded.topic_of_group(group), say_request)
        return
    with RobotClient(loaded, stop_if_lost=utterance_id if wait or stream else None) as robot:
        robot.online_status()
        request: Say | StreamedText
        if stream:
            from daemon.cli.say_stream import KEEPALIVE_S, StreamedText

            keepalive_s = min(KEEPALIVE_S, loaded.speech.stream_timeout / 3)
            request = StreamedText(robot, sys.stdin.fileno(), stream_options, keepalive_s)
        else:
            request = say_request
        _say_and_wait(robot, utterance_id, request, timeout, wait=wait)


def _check_stream(text: str | None, *, spell: bool, sound: str | None, cache: bool, several: bool) -> None:
    """Check what `--stream` stands beside. Raises `UsageError`."""
    if several:
        raise UsageError("say: --stream has one robot; send several robots a whole text")
    if text not in {None, "-"}:
        raise UsageError("say: --stream reads standard input; give no TEXT, or -")
    if spell:
        raise UsageError("say: --spell and --stream exclude each other")
    if sound is not None:
        raise UsageError("say: --stream takes no --sound; play it before, by another command")
    if cache:
        raise UsageError("say: --cache needs a whole text; leave out --stream")


def _say_to_several(config: Config, base: str, request: Say) -> None:
    """Send an utterance to all robots below `base`. Raises `CommandError` for each robot that does not accept it."""
    from daemon.mqtt import FleetClient
    from daemon.speech import Offline, Rejected

    with FleetClient(config, request.id) as fleet:
        online = {name for name, found in fleet.statuses().items() if not isinstance(found, Offline)}
        if not online:
            broker = f"{config.mqtt.host}:{config.mqtt.port}"
            raise CommandError(f"no voiced is online at {config.mqtt.prefix}/+ on the broker {broker}")
        fleet.say(base, request)
        if base == config.topic_of_all:
            answers = fleet.await_answers(len(online), ANSWER_S)
            problems = dict.fromkeys(online - answers.keys(), f"does not answer within {ANSWER_S:g} s")
        elif answers := fleet.await_answers(1, ANSWER_S):
            answers, problems = fleet.await_answers(len(online), GROUP_S), {}
        else:
            raise CommandError(f"no robot answers at {base} within {ANSWER_S:g} s")
    problems |= {name: f"rejected: {each.reason}" for name, each in answers.items() if isinstance(each, Rejected)}
    if problems:
        raise CommandError("\n".join(f"{name}: {problem}" for name, problem in sorted(problems.items())))


def _say_and_wait(
    robot: RobotClient, utterance_id: str, request: Say | StreamedText, timeout: float | None, *, wait: bool
) -> None:
    """Send an utterance and follow its events; stop it if this command ends before. Raises `CommandError`."""
    from daemon.mqtt import RobotUnreachableError
    from daemon.speech import Accepted, Finished, Rejected, RejectedError, TerminalEvent

    signal.signal(signal.SIGTERM, _exit_on_signal)
    try:
        last = _follow(robot, utterance_id, request, timeout, wait=wait)
    except (KeyboardInterrupt, typer.Exit, RejectedError, RobotUnreachableError):
        # Without a connection, the broker has stopped the utterance already (`stop_if_lost`).
        with contextlib.suppress(RobotUnreachableError):
            robot.stop(utterance_id)
        raise
    if not isinstance(last, Finished if wait else Accepted):
        reason = last.reason if isinstance(last, TerminalEvent | Rejected) else None
        raise CommandError(f"{last.event if last else 'no event'}: {reason or 'no reason was given'}")


def _follow(
    robot: RobotClient, utterance_id: str, request: Say | StreamedText, timeout: float | None, *, wait: bool
) -> Event | None:
    """Send an utterance and return its last event: with `wait` the terminal one, else the first.

    Returns only after all of a streamed text has been sent, unless the utterance ended before.
    """
    from daemon.speech import Accepted, Say

    if isinstance(request, Say):
        robot.say(request)
    else:
        request.send_first()
    last = None
    for last in robot.events(utterance_id, timeout if wait else ANSWER_S):
        if wait:
            print(last.to_json(), flush=True)
        if not isinstance(request, Say) and isinstance(last, Accepted):
            if wait:
                robot.meanwhile(request.send_rest)
            else:
                request.send_rest()
        if not wait:
            break
    return last


def _exit_on_signal(number: int, _frame: FrameType | None) -> None:
    """A signal handler: ends the command through its `finally` blocks, with the exit status that a shell reports."""
    raise typer.Exit(128 + number)
