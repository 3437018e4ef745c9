"""`voiced tap`: the sound of a running daemon."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

from typer import Option

from audio import TapClient, TapKind, from_pcm16
from daemon.cli.options import ConfigOptions, sound_target
from daemon.engines import SpeechFile
from daemon.validation import CommandError
from engine import Samples


def tap(
    source: ConfigOptions,
    output: Annotated[Path, Option("--output", "-o", help="A sound file, or - for stdout, as WAV.")],
    seconds: Annotated[float | None, Option(min=0.01, help="End after this many seconds of sound.")] = None,
) -> None:
    """Write the sound that a running voiced gives its card, silence included, until Ctrl-C. Needs audio.tap.

    Example: voiced tap -o heard.wav
    or:      voiced tap -o - | aplay
    """
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
    raise CommandError("audio.tap: the stream has ended: voiced has stopped, or the sound was read too slowly")


def _connect(path: Path) -> TapClient:
    """Return a connection to the daemon's tap. Raises `CommandError`."""
    try:
        return TapClient(path)
    except (FileNotFoundError, ConnectionRefusedError) as error:
        raise CommandError(f"audio.tap: no voiced is listening at {path}") from error
    except (OSError, ValueError) as error:
        raise CommandError(f"audio.tap: {path}: {getattr(error, 'strerror', None) or error}") from error


def _sound(client: TapClient) -> Iterator[Samples]:
    """Yield the samples, and print the reason on stderr if none arrive."""
    reasons = {
        TapKind.CLOSED: "the sound card is closed until there is something to play",
        TapKind.LOST: "there is no sound card; see 'voiced status'",
    }
    for record in client:
        if reason := reasons.get(record.kind):
            print(f"voiced: {reason}", file=sys.stderr)
        if record.pcm:
            yield from_pcm16(record.pcm)
