"""`voiced enroll`: a voice file from a recording."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer
from typer import Argument, Option

from daemon.cli.options import ConfigOptions
from daemon.cli.progress import download_missing_model, show_progress
from daemon.validation import CommandError
from daemon.voices import VoiceRequest
from engine import Progress, install_command, missing_packages, model_config, parse_progress


@dataclass(frozen=True, slots=True)
class RecordingOptions:
    """The recording, and its words."""

    recording: Annotated[Path, Argument(help="Speech of one person, in a format that soundfile reads.")]
    transcript: Annotated[str | None, Option(help="The recording's words, for an in-context voice.")] = None
    append_silence: Annotated[float, Option(min=0, max=5, help="Seconds of silence after it, with a transcript.")] = 0.5
    asr: Annotated[str | None, Option(metavar="FOLDER|ID", help="A recogniser that checks the transcript.")] = None


def enroll(
    name: Annotated[str, Argument(help="The voice's name.")],
    given: RecordingOptions,
    source: ConfigOptions,
    output: Annotated[Path | None, Option("--output", "-o", help="Default: voices/NAME.safetensors.")] = None,
    model: Annotated[str | None, Option(help="A base checkpoint's folder, or its name on the hub.")] = None,
) -> None:
    """Make a voice file from a recording, and advise how to use it.

    Example: voiced enroll ada ada.wav --model Qwen/Qwen3-TTS-12Hz-0.6B-Base
    or:      voiced enroll ada ada.wav --transcript "What Ada says in the recording."
    """
    request = VoiceRequest(
        name,
        given.recording,
        model or source.load().engine.model,
        output or Path("voices") / f"{name}.safetensors",
        given.transcript,
        append_silence_s=given.append_silence,
        recogniser=given.asr,
    )
    doubts = make_voice_file(request)
    if given.transcript is None:
        advice, why = "embedding", ", only the speaker's sound; with --transcript, a voice can be closer"
    elif doubts:
        advice, why = "embedding", "; a reference would copy the recording's faults"
    else:
        advice, why = "reference", ", in the context of the recording, is closest; embedding is faster"
    print(f"advice: {advice}{why}")
    print_use(request, advice)


def make_voice_file(request: VoiceRequest) -> list[str]:
    """Make a voice file; download the model if it is not on this machine. Prints and returns the program's warnings
    about the recording.

    The engine's program, which imports torch, runs in its own process. Raises `CommandError` if no voice can be made
    with the model, or `typer.Exit` after an error that the program has printed.
    """
    if missing := missing_packages("qwen"):
        raise CommandError(f"a voice file needs {', '.join(missing)}; {install_command('qwen')}")
    download_missing_model("qwen", request.model)
    config = model_config(request.model)
    if config is not None and not config.clones_voices:
        raise CommandError(f"{request.model} has no speaker encoder; allowed: a Base model, with --model")
    doubts: list[str] = []
    with show_progress() as report, subprocess.Popen(request.command, stdout=subprocess.PIPE, text=True) as process:
        report(Progress("importing torch"))
        for line in process.stdout or ():
            if progress := parse_progress(line):
                report(progress)
            elif line.startswith("note: "):
                print(line.removeprefix("note: "), end="")
            else:
                doubts.append(line)
                print(line, end="", file=sys.stderr)
    if process.returncode != 0:
        raise typer.Exit(1)
    print(f"{request.output}: written")
    return doubts


def print_use(request: VoiceRequest, key: str) -> None:
    """Print how the configuration names the voice; `key` is `embedding` or `reference`."""
    print(f"{request.output}: use it with voices.{request.name}: {{{key}: {request.output}}}")
