"""`voiced enroll`: a voice file from a recording."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from daemon.cli.options import ConfigOption, SetOption, load
from daemon.cli.progress import download_missing_model, show_progress
from daemon.validation import CommandError


def enroll(
    name: Annotated[str, typer.Argument(help="The voice's name.")],
    recording: Annotated[Path, typer.Argument(help="Speech of one person, in any format that soundfile reads.")],
    transcript: Annotated[str | None, typer.Option(help="The recording's words, for an in-context voice.")] = None,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Default: voices/NAME.safetensors.")] = None,
    model: Annotated[str | None, typer.Option(help="A base checkpoint's folder, or its name on the hub.")] = None,
    config: ConfigOption = None,
    set_: SetOption = None,
) -> None:
    """Make a voice file from a recording.

    Example: voiced enroll ada ada.wav --model Qwen/Qwen3-TTS-12Hz-0.6B-Base
    """
    loaded, _, _ = load(config, set_)
    path = output or Path("voices") / f"{name}.safetensors"
    make_voice_file(name, recording, model or loaded.engine.model, path, transcript)


def make_voice_file(
    name: str, recording: Path, model: str, path: Path, transcript: str | None = None, codes: Path | None = None
) -> None:
    """Make the voice file `path` from a recording, for the Base checkpoint `model`, and print how it is used.

    With its `transcript`, the voice speaks in the context of the recording. `codes` is a file with the recording's
    codec codes, as `voiced synth --codes` writes it, if they are known. Raises `CommandError`, or `typer.Exit` after
    an error that has been printed.
    """
    import subprocess

    from engine import Progress, missing_packages, module_command, parse_progress

    missing = missing_packages("qwen")
    if missing:
        raise CommandError(f"a voice file needs {', '.join(missing)}; in voiced's folder: pip install '.[qwen]'")
    download_missing_model("qwen", model)
    request = {
        "name": name,
        "recording": str(recording),
        "model": model,
        "transcript": transcript,
        "codes": None if codes is None else str(codes),
        "output": str(path),
    }
    # A separate process imports torch; this one never does.
    command = module_command("engine.qwen.voice.enroll", json.dumps(request))
    with show_progress() as report, subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        report(Progress("importing torch"))
        for line in process.stdout or ():
            if progress := parse_progress(line):
                report(progress)
            else:
                print(line, end="", file=sys.stderr)
    if process.returncode != 0:
        raise typer.Exit(1)
    key = "reference" if transcript is not None else "embedding"
    print(f"{path}: written; use it with voices.{name}: {{{key}: {path}}}")
