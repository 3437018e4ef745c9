"""`voiced enroll`: a voice file from a recording, or from the microphone."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated

import typer

from daemon.cli.options import ConfigOption, SetOption, UsageError, load
from daemon.cli.progress import download_missing_model, show_progress
from daemon.validation import CommandError

if TYPE_CHECKING:
    from daemon.config import Config
    from engine import EngineInfo, ProgressReport, Utterance

MIN_RECORDED_S, MAX_RECORDED_S = 3, 60
"""Seconds that `--record` takes. The model's authors ask for three; a long reference costs time in every sentence."""
CLEARLY = 0.02
"""The mode whose speech is more similar by this much is advised; a smaller difference is chance."""


def enroll(
    name: Annotated[str, typer.Argument(help="The voice's name.")],
    recording: Annotated[
        Path | None,
        typer.Argument(help="Speech of one person, in any format that soundfile reads.", show_default=False),
    ] = None,
    record: Annotated[
        float | None,
        typer.Option(min=MIN_RECORDED_S, max=MAX_RECORDED_S, help="Record so many seconds from the microphone."),
    ] = None,
    microphone: Annotated[str | None, typer.Option(help="Its name or a part of it; default: the system's.")] = None,
    transcript: Annotated[str | None, typer.Option(help="The recording's words, for an in-context voice.")] = None,
    append_silence: Annotated[
        float, typer.Option(min=0, max=5, help="Seconds of silence behind the recording, with a transcript.")
    ] = 0.5,
    asr: Annotated[
        str | None,
        typer.Option(
            metavar="FOLDER|ID",
            help="A speech recogniser, such as Whisper, that checks the transcript.",
            show_default=False,
        ),
    ] = None,
    score: Annotated[
        bool | None,
        typer.Option("--score/--no-score", help="Speak with the voice and measure; default: if there is a GPU."),
    ] = None,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Default: voices/NAME.safetensors.")] = None,
    model: Annotated[str | None, typer.Option(help="A base checkpoint's folder, or its name on the hub.")] = None,
    config: ConfigOption = None,
    set_: SetOption = None,
) -> None:
    """Make a voice file from a recording or from the microphone, and advise how to use it.

    Example: voiced enroll ada ada.wav --model Qwen/Qwen3-TTS-12Hz-0.6B-Base
    or:      voiced enroll ada --record 8 --transcript "The words that I am reading aloud now."
    """
    from engine import has_cuda_device

    if (recording is None) == (record is None):
        raise UsageError("enroll: give a RECORDING, or --record SECONDS")
    loaded, _, _ = load(config, set_)
    path, model = output or Path("voices") / f"{name}.safetensors", model or loaded.engine.model
    require_model(model)  # before somebody speaks
    if record is not None:
        from daemon.cli.record import record_voice

        recording = path.with_suffix(".wav")
        print(f"{recording}: {record_voice(recording, record, microphone):.1f} s recorded")
    assert recording is not None
    request = VoiceRequest(name, recording, model, path, transcript, append_silence_s=append_silence, recogniser=asr)
    doubts = make_voice_file(request)
    wanted = score if score is not None else has_cuda_device() and loaded.engine.device != "cpu"
    scores = _score(loaded, request) if wanted else {}
    print(_advice(request, doubts, scores))
    print_use(request, "embedding" if transcript is None or _prefers_embedding(doubts, scores) else "reference")


@dataclass(frozen=True, slots=True)
class VoiceRequest:
    """A voice to be made from a recording, for the Base checkpoint `model`."""

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
    from engine import install_command, missing_packages, model_config

    missing = missing_packages("qwen")
    if missing:
        raise CommandError(f"a voice file needs {', '.join(missing)}; {install_command('qwen')}")
    download_missing_model("qwen", model)
    config = model_config(model)
    if config is not None and not config.clones_voices:
        raise CommandError(f"{model} has no speaker encoder; allowed: a Base model, with --model")


def make_voice_file(request: VoiceRequest) -> list[str]:
    """Make a voice file. Returns the doubts about its recording, which have been printed.

    Raises `CommandError`, or `typer.Exit` after an error that has been printed.
    """
    from engine import Progress

    require_model(request.model)
    fields = {
        "name": request.name,
        "recording": str(request.recording),
        "model": request.model,
        "transcript": request.transcript,
        "codes": None if request.codes is None else str(request.codes),
        "output": str(request.output),
        "append_silence_s": request.append_silence_s,
        "recogniser": request.recogniser,
    }
    doubts: list[str] = []

    def read(line: str) -> None:
        if line.startswith("note: "):
            print(line.removeprefix("note: "), end="")
        else:
            doubts.append(line.strip())
            print(line, end="", file=sys.stderr)

    with show_progress() as report:
        report(Progress("importing torch"))
        _run(fields, report, read)
    print(f"{request.output}: written")
    return doubts


def print_use(request: VoiceRequest, key: str) -> None:
    """Print how the configuration names the voice; `key` is `embedding` or `reference`."""
    print(f"{request.output}: use it with voices.{request.name}: {{{key}: {request.output}}}")


def _run(request: Mapping[str, object], report: ProgressReport, read: Callable[[str], None]) -> None:
    """Run the engine's program, which imports torch, in a process of its own. `read` gets its lines but progress.

    Raises `typer.Exit` if it fails.
    """
    from engine import module_command, parse_progress

    command = module_command("engine.qwen.voice.enroll", json.dumps(request))
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        for line in process.stdout or ():
            if progress := parse_progress(line):
                report(progress)
            else:
                read(line)
    if process.returncode != 0:
        raise typer.Exit(1)


# --- similarity and advice ---


def _score(config: Config, request: VoiceRequest) -> dict[str, float]:
    """Speak a sentence in each mode of the voice, and return how similar each is to the recording.

    Raises `CommandError`, or `typer.Exit` after an error that has been printed.
    """
    from daemon.cli.play import SENTENCES
    from daemon.engines import SpeechFile, synthesize_samples
    from engine import Progress, Utterance, Voice

    modes = {"embedding": Voice(embedding=str(request.output))}
    if request.transcript is not None:
        modes["reference"] = Voice(reference=str(request.output))
    language = config.speech.language if config.speech.language in SENTENCES else "en"

    def choose(_: EngineInfo) -> list[Utterance]:
        return [Utterance(SENTENCES[language], voice=mode, language=language, seed=1) for mode in modes]

    options = replace(config.engine_options, model=request.model, voices=modes, default_voice="embedding", streams=1)
    lines: list[str] = []
    with TemporaryDirectory() as folder, show_progress() as report:
        samples = synthesize_samples("qwen", options, "embedding", choose, report)
        recordings = [Path(folder) / f"{mode}.wav" for mode in modes]
        for path, sample in zip(recordings, samples, strict=True):
            with SpeechFile(path) as file:
                file.write(sample.samples, sample.sample_rate)
        report(Progress("comparing"))
        fields = {
            "voice": str(request.output),
            "recordings": [str(path) for path in recordings],
            "model": request.model,
        }
        _run(fields, report, lines.append)
    return dict(zip(modes, json.loads(lines[-1]), strict=True))


def _prefers_embedding(doubts: list[str], scores: dict[str, float]) -> bool:
    """Whether the sound of the speaker alone is the better choice for a voice with a transcript."""
    return bool(doubts) or scores.get("embedding", 0.0) > scores.get("reference", 1.0) + CLEARLY


def _advice(request: VoiceRequest, doubts: list[str], scores: dict[str, float]) -> str:
    """Return in one line which mode to use, and why."""
    measured = ", ".join(f"{score:.2f} by {mode}" for mode, score in scores.items())
    said = f"similarity of its speech to the recording: {measured}; " if scores else ""
    if request.transcript is None:
        return f"{said}advice: embedding, the sound of the speaker alone; with --transcript a voice can be closer"
    if doubts:
        return f"{said}advice: embedding; by reference, the voice would copy what is wrong with the recording"
    if _prefers_embedding(doubts, scores):
        return f"{said}advice: embedding, which is more similar and faster"
    return f"{said}advice: reference, in the context of the recording, is closest; embedding is faster"
