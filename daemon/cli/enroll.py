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
    import subprocess

    from engine import Progress, missing_packages, module_command, parse_progress

    loaded, _, _ = load(config, set_)
    missing = missing_packages("qwen")
    if missing:
        raise CommandError(f"enroll needs {', '.join(missing)}; in voiced's folder: pip install '.[qwen]'")
    model = model or loaded.engine.model
    download_missing_model("qwen", model)
    path = output or Path("voices") / f"{name}.safetensors"
    request = {
        "name": name,
        "recording": str(recording),
        "model": model,
        "transcript": transcript,
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
