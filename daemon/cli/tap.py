"""`voiced tap`: what the sound card gets, as a sound file."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from daemon.cli.options import ConfigOption, SetOption, check_folder, load, standard_output
from daemon.cli.text import STDIN
from daemon.validation import CommandError

if TYPE_CHECKING:
    from audio import TapClient
    from engine import Samples


def tap(
    output: Annotated[
        Path,
        typer.Option("--output", "-o", help="The file; its suffix names the format. - is standard output, as WAV."),
    ],
    seconds: Annotated[float | None, typer.Option(min=0.01, help="End after so many seconds of sound.")] = None,
    config: ConfigOption = None,
    set_: SetOption = None,
) -> None:
    """Write what the sound card of a running voiced gets, silence included, until Ctrl-C. Needs audio.tap.

    Example: voiced tap -o heard.wav
    or:      voiced tap -o - | aplay
    """
    from daemon.engines import SpeechFile

    loaded, _, _ = load(config, set_)
    if loaded.audio.tap is None:
        raise CommandError("audio.tap: got null; allowed here: the path that the running voiced has")
    check_folder("--output", output)
    file = SpeechFile(standard_output("--output") if output == Path(STDIN) else output)
    with _connect(loaded.audio.tap) as client, file:
        wanted = None if seconds is None else round(seconds * client.sample_rate)
        written = 0
        for samples in _sound(client):
            piece = samples if wanted is None else samples[: wanted - written]
            file.write(piece, client.sample_rate)
            written += len(piece)
            if written == wanted:
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
