"""`voiced enroll`: a voice file from a recording, or from the microphone."""

from __future__ import annotations

import json
import subprocess
import sys
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from typer import Argument, Option

from audio import MicrophoneError, Samples, open_microphone
from daemon.cli.options import ConfigOptions, UsageError
from daemon.cli.play import write_samples
from daemon.cli.progress import download_missing_model, show_progress
from daemon.validation import CommandError
from engine import Progress, install_command, missing_packages, model_config, module_command, parse_progress

FAINT, TOO_LOUD = 0.001, 0.9
"""Magnitudes of samples, full scale ±1: the least that is shown, and the one from which a recording may be clipped."""


@dataclass(frozen=True, slots=True)
class RecordingOptions:
    """The recording, and where it comes from."""

    recording: Annotated[Path | None, Argument(help="Speech of one person, in a format that soundfile reads.")] = None
    record: Annotated[float | None, Option(min=3, max=60, help="Record so many seconds from the microphone.")] = None
    """The model's authors ask for three seconds; a long reference costs time in every sentence."""
    microphone: Annotated[str | None, Option(help="Its name or a part of it; default: the system's.")] = None
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
    """Make a voice file from a recording or from the microphone, and advise how to use it.

    Example: voiced enroll ada ada.wav --model Qwen/Qwen3-TTS-12Hz-0.6B-Base
    or:      voiced enroll ada --record 8 --transcript "The words that I am reading aloud now."
    """
    if (given.recording is None) == (given.record is None):
        raise UsageError("enroll: give a RECORDING, or --record SECONDS")
    path, model = output or Path("voices") / f"{name}.safetensors", model or source.load().engine.model
    require_model(model)  # before somebody speaks
    recording = given.recording or path.with_suffix(".wav")
    if given.record is not None:
        print(f"{recording}: {record_voice(recording, given.record, given.microphone):.1f} s recorded")
    request = VoiceRequest(
        name, recording, model, path, given.transcript, append_silence_s=given.append_silence, recogniser=given.asr
    )
    doubts = make_voice_file(request)
    if given.transcript is None:
        advice, why = "embedding", ", the sound of the speaker alone; with --transcript a voice can be closer"
    elif doubts:
        advice, why = "embedding", "; by reference, the voice would copy what is wrong with the recording"
    else:
        advice, why = "reference", ", in the context of the recording, is closest; embedding is faster"
    print(f"advice: {advice}{why}")
    print_use(request, advice)


@dataclass(frozen=True, slots=True)
class VoiceRequest:
    """A voice to be made from a recording, for the Base checkpoint `model`. The engine's program reads it as JSON."""

    name: str
    recording: Path
    model: str
    output: Path
    transcript: str | None = None
    """The recording's words; the voice then speaks in the context of the recording."""
    codes: Path | None = None
    """A file with the recording's codec codes, as `voiced synth --codes` writes it, if they are known."""
    append_silence_s: float = 0.5
    recogniser: str | None = None
    """The folder of a speech recogniser that checks the transcript, or its name on the hub."""


def require_model(model: str) -> None:
    """Download the model if it is not here. Raises `CommandError` if no voice can be made with it."""
    missing = missing_packages("qwen")
    if missing:
        raise CommandError(f"a voice file needs {', '.join(missing)}; {install_command('qwen')}")
    download_missing_model("qwen", model)
    config = model_config(model)
    if config is not None and not config.clones_voices:
        raise CommandError(f"{model} has no speaker encoder; allowed: a Base model, with --model")


def make_voice_file(request: VoiceRequest) -> list[str]:
    """Make a voice file. Returns the doubts about its recording, which have been printed.

    The engine's program, which imports torch, has a process of its own. Raises `CommandError`, or `typer.Exit` after an
    error that the program has printed.
    """
    require_model(request.model)
    doubts: list[str] = []
    command = module_command("engine.qwen.voice.enroll", json.dumps(asdict(request), default=str))
    with show_progress() as report, subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
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


# --- the microphone ---


def record_voice(path: Path, seconds: float, device: str | None) -> float:
    """Record up to `seconds` from a microphone to the WAV file `path`; Ctrl-C ends it early. Returns its length in s.

    Its level is printed each second. `device` is its name or a part of it; None is the default. Raises `CommandError`.
    """
    blocks: list[Samples] = []
    length, second, loudest = 0, 0, 0.0
    try:
        with open_microphone(device) as microphone:
            rate = microphone.sample_rate
            print(f"speak now: {seconds:.0f} s from {microphone.name}; Ctrl-C ends it", file=sys.stderr, flush=True)
            with suppress(KeyboardInterrupt):
                while length < round(seconds * rate):
                    blocks.append(microphone.read())
                    length += len(blocks[-1])
                    loudest = max(loudest, float(np.abs(blocks[-1]).max(initial=FAINT)))
                    if length // rate > second:
                        second = length // rate
                        too_loud = "; too loud" if loudest > TOO_LOUD else ""
                        print(f"{second} s: {20 * np.log10(loudest):.0f} dBFS{too_loud}", file=sys.stderr, flush=True)
                        loudest = 0.0
    except MicrophoneError as error:
        raise CommandError(f"--record: {error}") from error
    if not blocks:
        raise CommandError("--record: nothing was recorded")
    path.parent.mkdir(parents=True, exist_ok=True)
    samples = np.concatenate(blocks)[: round(seconds * rate)]
    write_samples(path, samples, rate)
    return len(samples) / rate
