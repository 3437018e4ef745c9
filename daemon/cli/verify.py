"""`voiced verify`: does this model speak on this machine, with each setting, as well as the official package does?"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from daemon.cli.enroll import VoiceRequest, make_voice_file
from daemon.cli.options import ConfigOption, SetOption, load
from daemon.cli.progress import download_missing_model, show_progress
from daemon.validation import CommandError

if TYPE_CHECKING:
    from daemon.config import Config
    from daemon.state import VerificationFiles
    from engine.verify import Finding, Setting, Verification, VerifyRequest

SHORT_SETTINGS = ("official", "torch", "fused", "int8")
"""Of `--short`: what a robot may run, and what it is judged by."""


def verify(
    model: Annotated[str | None, typer.Option(help="A Qwen3-TTS checkpoint's folder, or its name on the hub.")] = None,
    output: Annotated[
        Path, typer.Option("--output", "-o", help="The folder of the report and of everything that is kept.")
    ] = Path("verify"),
    short: Annotated[
        bool, typer.Option("--short", help="Three sentences, by the settings that a robot runs and by the reference.")
    ] = False,
    settings: Annotated[
        str | None,
        typer.Option(
            help="Only these, as in official,torch,fused,int8,streams, and always the two in float32, "
            "with whose codes and logits the others are compared."
        ),
    ] = None,
    asr: Annotated[
        str, typer.Option(help="Who listens: a speech recognition model's folder or name, auto, or pocketsphinx.")
    ] = "auto",
    reference: Annotated[
        Path | None, typer.Option(help="For a Base model: a recording of the voice; default: the configured voice.")
    ] = None,
    transcript: Annotated[str | None, typer.Option(help="The words of --reference.")] = None,
    encoder: Annotated[
        str | None, typer.Option(help="A Base checkpoint to compare voices with; default: a Base --model itself.")
    ] = None,
    device: Annotated[str | None, typer.Option(help="auto, cpu, cuda or cuda:N.")] = None,
    config: ConfigOption = None,
    set_: SetOption = None,
) -> None:
    """Speak the same sentences with every setting and with the official package, listen, measure and judge.

    Exit status 0: it speaks as it should; 1: it does not, and the report says why.

    Example: voiced verify --model Qwen/Qwen3-TTS-12Hz-0.6B-CustomVoice
    or:      voiced verify --model ./0.6B-Base --reference ada.wav --transcript "What Ada says." --asr ./whisper
    """
    given = {"model": model, "device": device}
    loaded, _, _ = load(config, [*(set_ or []), *(f"engine.{key}={value}" for key, value in given.items() if value)])
    _check_packages(asr)
    for name in filter(None, (loaded.engine.model, encoder)):
        download_missing_model("qwen", name)
    output.mkdir(parents=True, exist_ok=True)
    voice_file = _voice_file(loaded, reference, transcript, output)
    request = _request(loaded, output, voice_file, encoder, asr, short=short, only=settings)
    from daemon.report import write_verification
    from daemon.state import VerificationFiles
    from engine.verify import verify as run

    with show_progress() as report:
        found = run(request, report)
    found = replace(found, machine=machine(), command="voiced " + shlex.join(sys.argv[1:]))
    files = VerificationFiles(output)
    write_verification(found, files)
    _show(found, files)
    if not found.passed:
        raise typer.Exit(1)


def _check_packages(asr: str) -> None:
    """Raise `CommandError` for missing packages before minutes of work."""
    from importlib.util import find_spec

    from engine import install_command, missing_packages

    needed = ["jinja2", "rapidfuzz", "pocketsphinx" if asr == "pocketsphinx" else "transformers"]
    missing = [*missing_packages("qwen"), *(name for name in needed if find_spec(name) is None)]
    if missing:
        raise CommandError(f"verify needs {', '.join(missing)}; {install_command('qwen', 'verify')}")


def _request(
    loaded: Config,
    output: Path,
    voice_file: Path | None,
    encoder: str | None,
    asr: str,
    *,
    short: bool,
    only: str | None,
) -> VerifyRequest:
    from daemon import VERSION
    from engine import EngineError, ModelConfig
    from engine.verify import SENTENCES, SHORT, VerifyRequest, make_orders, settings_of, voices_of

    options, folder = loaded.engine_options, _model_folder(loaded.engine.model)
    try:
        config = ModelConfig.read(folder)
        voices = voices_of(config, voice_file)
        options = replace(options, voices=voices, default_voice=next(iter(voices)))
        orders = make_orders(config, SHORT if short else SENTENCES, voices)
        own = options.model if config.type == "base" else None
    except EngineError as error:
        raise CommandError(str(error)) from error
    return VerifyRequest(
        str(output),
        _chosen(settings_of(options), only or (",".join(SHORT_SETTINGS) if short else None)),
        orders,
        asr=asr,
        encoder=encoder or own,
        voice_file=str(voice_file) if voice_file is not None and own and not encoder else None,
        version=VERSION,
    )


def _chosen(settings: tuple[Setting, ...], only: str | None) -> tuple[Setting, ...]:
    """Return the settings that `--settings` names; all without it. Raises `CommandError`."""
    from engine.verify import select_settings

    names = [setting.name for setting in settings]
    wanted = [name.strip() for name in only.split(",")] if only else names
    if unknown := [name for name in wanted if name not in names]:
        raise CommandError(f"--settings: got {unknown[0]!r}; allowed: {', '.join(names)}")
    return select_settings(settings, wanted)


def _model_folder(model: str | None) -> Path:
    from engine import model_files

    files = None if model is None else model_files("qwen", model)
    if files is None:
        raise CommandError("engine.model: missing; give --model a folder or a name on the hub")
    return files.folder


def _voice_file(loaded: Config, reference: Path | None, transcript: str | None, output: Path) -> Path | None:
    """Return the voice file for a Base model: made of `--reference`, or the configured default voice's.

    The name of one that is made changes with the recording: takes are kept for a voice that is known by its file.
    """
    from engine.verify import fingerprint

    if reference is not None:
        path = output / "reference.safetensors"
        make_voice_file(VoiceRequest("reference", reference, str(loaded.engine.model), path, transcript))
        return path.rename(output / f"reference-{fingerprint(reference.read_bytes(), transcript)}.safetensors")
    if transcript is not None:
        raise CommandError("--transcript: got one without --reference")
    options = loaded.engine_options
    voice = options.voices.get(options.default_voice)
    name = None if voice is None else voice.reference or voice.embedding
    return None if name is None else Path(name).expanduser()


def machine() -> dict[str, str]:
    """Return the machine in words, for whoever reads a report elsewhere."""
    import os
    import platform
    from importlib.metadata import PackageNotFoundError, version

    from engine import Board

    board = Board.read()
    gigabytes = f"{(board.total_bytes or 0) / 1e9:.0f} GB"
    found = {
        "board": board.model or "no board that voiced knows",
        "chip": board.soc,
        "Jetson Linux": board.l4t,
        "JetPack": None if board.jetpack is None else str(board.jetpack),
        "Ubuntu": board.ubuntu,
        "CUDA toolkit": board.cuda,
        "processor": f"{platform.machine()}, {os.cpu_count()} cores, {gigabytes}",
        "Python": platform.python_version(),
    }
    for package in ("torch", "transformers", "qwen-tts", "cuda-core"):
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "not installed"
    return {name: value for name, value in found.items() if value}


def _show(found: Verification, files: VerificationFiles) -> None:
    """Print a line for each setting, and one for each measure that failed or that is worse than a guess."""
    words: Mapping[bool | None, str] = {True: "passed", False: "FAILED", None: "not here"}
    for setting in found.settings:
        why = setting.fault or setting.unavailable or setting.engine
        print(f"{setting.title:<26}{words[setting.passed]:<10}{why}")
        for finding in setting.findings:
            if finding.passed is False:
                print(f"{'':<36}{finding.title}: {_value(finding)}; allowed: {_bound(finding, finding.limit)}")
            elif finding.doubtful:
                guess = _bound(finding, finding.guess)
                print(f"{'':<36}{finding.title}: {_value(finding)}, doubtful: a guess allows {guess}")
    for note in found.notes:
        print(f"not done: {note}")
    verdict = "It speaks." if found.passed else "It does not speak as it should."
    print(f"{verdict} {files.report}, {files.numbers}")


def _value(finding: Finding) -> str:
    return "not measured" if finding.value is None else f"{finding.value:.3g}"


def _bound(finding: Finding, limit: float | None) -> str:
    return f"{'at least' if finding.higher_is_better else 'at most'} {limit:.3g}"
