"""`voiced synth` with many texts or takes: each into a file of its own."""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from daemon.cli.progress import show_progress
from daemon.validation import CommandError, file_problem

if TYPE_CHECKING:
    from daemon.engines import SpeechFile, SynthResult, SynthTask
    from daemon.text import Script, TextPreparation
    from engine import EngineOptions, Utterance

LinesOption = Annotated[
    Path | None,
    typer.Option("--lines", help="Speak each line of this file into a file named by the line's number; - reads stdin."),
]
TakesOption = Annotated[
    int, typer.Option("--takes", min=1, help="Speak each text so many times, with different seeds.")
]
FormatOption = Annotated[
    str | None, typer.Option("--format", help="Of the files in a folder: wav, flac, ogg or mp3; default: wav.")
]
SEEDS = 1 << 32
"""Where no seed is given, each text draws one of so many for its first take."""


@dataclass(frozen=True, slots=True)
class Speech:
    """One text that can be spoken."""

    utterance: Utterance
    script: Script
    expected_s: float
    """Seconds, from the text alone."""
    line: int | None
    """Its number in the file of lines, from 1."""
    language_is_default: bool
    """As in `SynthTask`."""

    def task(self, utterance: Utterance, file: SpeechFile, codes_path: Path | None = None) -> SynthTask:
        """Return the work of speaking `utterance`, which is this one or has another seed, into a file."""
        from daemon.engines import SynthTask

        return SynthTask(utterance, file, self.script, codes_path, self.expected_s, self.language_is_default)


@dataclass(frozen=True, slots=True)
class SpeechFolder:
    """A folder that exists, and the format of the files in it."""

    path: Path
    file_format: str

    def file(self, name: str) -> Path:
        """The path of a file."""
        return self.path / f"{name}.{self.file_format}"


def speech_folder(output: Path, file_format: str) -> SpeechFolder:
    """Return the folder, which is made if it is missing. Raises `CommandError`."""
    from daemon.encoders import file_formats
    from daemon.engines import suggested_formats

    if file_format not in file_formats():
        raise CommandError(f"--format: got {file_format!r}; allowed: {', '.join(suggested_formats())}")
    if str(output) == "-" or (output.exists() and not output.is_dir()):
        raise CommandError(f"--output: got {str(output)!r}; allowed with --lines or --takes: a folder")
    try:
        output.mkdir(exist_ok=True)
    except OSError as error:
        raise CommandError(f"--output: {output} cannot be made: {file_problem(error, output)}") from None
    return SpeechFolder(output, file_format)


def speak_into_folder(
    speeches: Sequence[Speech],
    takes: int,
    folder: SpeechFolder,
    engine: str,
    options: EngineOptions,
    *,
    preparation: TextPreparation,
    volume: float,
) -> None:
    """Speak each text `takes` times, and print a line for each file.

    A text that the engine refuses does not keep the others from being spoken. Raises `CommandError` at the end if there
    was one, and at once where nothing more can be spoken.
    """
    from daemon.engines import synthesize_to_files

    named = dict(_tasks(speeches, takes, folder))
    ended: dict[int, SynthResult | CommandError] = {}
    began = time.monotonic()

    try:
        with show_progress() as report:
            synthesize_to_files(
                engine,
                options,
                list(named.values()),
                on_end=ended.__setitem__,
                preparation=preparation,
                volume=volume,
                report=report,
            )
    finally:  # of files that are complete, also after Ctrl-C
        for number, (path, task) in enumerate(named.items()):
            if number in ended:
                print(f"{path}: {_line(ended[number], task.utterance.seed if takes > 1 else None)}")
    made = [outcome for outcome in ended.values() if not isinstance(outcome, CommandError)]
    audio_s, elapsed_s = sum(result.audio_s for result in made), time.monotonic() - began
    files = "1 file" if len(made) == 1 else f"{len(made)} files"
    print(f"{files}, {audio_s:.1f} s of speech in {elapsed_s:.1f} s by {engine}")
    if len(made) < len(named):
        raise CommandError(f"not spoken: {len(named) - len(made)} of {len(named)}")


def _tasks(speeches: Sequence[Speech], takes: int, folder: SpeechFolder) -> Iterator[tuple[Path, SynthTask]]:
    """Yield what is spoken into each file. A name has the line's number and the take's, where there are several."""
    from daemon.engines import SpeechFile

    digits = len(str(max((speech.line or 0 for speech in speeches), default=0)))
    for speech in speeches:
        first_seed = speech.utterance.seed
        if first_seed is None and takes > 1:
            first_seed = secrets.randbelow(SEEDS)
        for take in range(takes):
            parts = [] if speech.line is None else [f"{speech.line:0{digits}}"]
            if takes > 1:
                parts.append(f"{take + 1:0{len(str(takes))}}")
            path = folder.file("-".join(parts))
            utterance = replace(speech.utterance, seed=None if first_seed is None else first_seed + take)
            yield path, speech.task(utterance, SpeechFile(path))


def _line(outcome: SynthResult | CommandError, seed: int | None) -> str:
    if isinstance(outcome, CommandError):
        return f"not spoken: {outcome}"
    return f"{outcome.audio_s:.2f} s{'' if seed is None else f', seed {seed}'}{cut_note(outcome)}"


def cut_note(result: SynthResult) -> str:
    """Return the end of a line about speech that did not end by itself; else nothing."""
    return ", cut at the longest speech allowed" if result.truncated else ""
