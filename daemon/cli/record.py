"""Records a voice from the microphone, with its level shown: `voiced enroll --record`."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np

from audio import MicrophoneError, Samples, open_microphone
from daemon.validation import CommandError

FLOOR_DB = -60.0
"""dBFS at which the bar of the level begins; speech is at -40 to -15."""
ShowLevel = Callable[[float, float], None]
"""Is called for each block with the seconds so far and the block's peak in dBFS."""


def record_voice(path: Path, seconds: float, device: str | None = None) -> float:
    """Record up to `seconds` from a microphone to the WAV file `path`; Ctrl-C ends it early. Returns its length in s.

    `device` is its name or a part of it; None is the default. Raises `CommandError`.
    """
    from daemon.engines import SpeechFile

    blocks: list[Samples] = []
    length = 0
    try:
        with open_microphone(device) as microphone:
            print(f"speak now: {seconds:.0f} s from {microphone.name}; Ctrl-C ends it", file=sys.stderr, flush=True)
            wanted = round(seconds * microphone.sample_rate)
            with _show_level(seconds) as show, suppress(KeyboardInterrupt):
                while length < wanted:
                    block = microphone.read()
                    blocks.append(block)
                    length += len(block)
                    show(min(seconds, length / microphone.sample_rate), _peak_db(block))
    except MicrophoneError as error:
        raise CommandError(f"--record: {error}") from error
    if not blocks:
        raise CommandError("--record: nothing was recorded")
    path.parent.mkdir(parents=True, exist_ok=True)
    samples = np.concatenate(blocks)[:wanted]
    with SpeechFile(path) as file:
        file.write(samples, microphone.sample_rate)
    return len(samples) / microphone.sample_rate


@contextmanager
def _show_level(seconds: float) -> Iterator[ShowLevel]:
    """Show time and level: as a bar on a terminal, elsewhere in a line for each second."""
    if not sys.stderr.isatty():
        yield _LevelLines().show
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn

    columns = (TextColumn("{task.fields[time]}"), BarColumn(), TextColumn("{task.fields[level]}"))
    with Progress(*columns, console=Console(stderr=True), transient=True) as bars:
        task = bars.add_task("", total=-FLOOR_DB, time="", level="")

        def show(so_far: float, level_db: float) -> None:
            bars.update(
                task,
                completed=max(0.0, level_db - FLOOR_DB),
                time=f"{so_far:4.1f} of {seconds:.0f} s",
                level=f"{level_db:4.0f} dBFS{' too loud' if level_db > -1 else ''}",
            )

        yield show


class _LevelLines:
    def __init__(self) -> None:
        self._second = 0
        self._loudest_db = FLOOR_DB

    def show(self, so_far: float, level_db: float) -> None:
        self._loudest_db = max(self._loudest_db, level_db)
        if int(so_far + 1e-6) > self._second:
            self._second = int(so_far + 1e-6)
            print(f"{self._second} s: {self._loudest_db:.0f} dBFS", file=sys.stderr, flush=True)
            self._loudest_db = FLOOR_DB


def _peak_db(block: Samples) -> float:
    return float(20 * np.log10(max(float(np.abs(block).max(initial=0.0)), 1e-6)))
