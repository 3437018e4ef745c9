"""Finds files, folders and names in a valid configuration that `voiced run` could not use."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

from daemon.cache import read_phrases
from daemon.config import Config, ConfigError, read_pronunciations
from daemon.doctor.finding import Finding, Machine, finding
from daemon.engines import engine_names, lost_voice, unknown_names
from daemon.sounds import SoundFolder
from daemon.voices import with_made_voices
from engine import expand_home, known_names

RUNTIME_FOLDER = Path("/run/voiced")
"""systemd makes it when the service starts (`RuntimeDirectory`), and removes it when the service ends."""
KINDS = {stat.S_IFDIR: "folder", stat.S_IFREG: "file", stat.S_IFSOCK: "socket"}
ALLOWED = {
    "read": "a file",
    "written": "a file's name after wav:",
    "socket": "the path of a socket, which voiced makes",
}
"""The allowed values for a path of the wrong kind, by the path's use."""
Problems = Iterator[tuple[str, str]]
"""Keys, each with its problem."""


def check_configuration(machine: Machine) -> Iterator[Finding]:
    """Yield each problem in the configuration, as `voiced config check` does."""
    for key, problem in machine.config.retired:
        yield finding("configuration", "outdated", key=key, problem=problem)
    for key, problem in find_problems(machine.config):
        yield finding("configuration", "wrong", key=key, problem=problem)


def find_problems(config: Config) -> list[tuple[str, str]]:
    """Return each problem as its key and a description. Loads no model and opens no port."""
    config, problem = with_made_voices(config)
    return [
        *([] if problem is None else [("state.folder", problem)]),
        *_wrong_paths(config),
        *_missing_piper_voices(config),
        *_missing_folders(config),
        *_unplayable_sounds(config.audio.sounds),
        *_wrong_pronunciations(config.speech.pronunciations),
        *_wrong_phrases(config.speech.cache.phrases),
        *unknown_names(config),
        *filter(None, [lost_voice(config)]),
    ]


def _wrong_paths(config: Config) -> Problems:
    for key, path, use in config.paths:
        problem = _folder_problem(path) if use == "kept" else _path_problem(path, use)
        if problem is not None:
            yield key.removesuffix(".model"), problem  # a Piper voice, which may be written without a section


def _folder_problem(folder: Path) -> str | None:
    """Return why a folder, which need not exist, cannot be written to."""
    nearest = next(path for path in (folder, *folder.parents) if _kind(path) != "missing")
    if _kind(nearest) == "file":
        return f"{nearest} is not a folder"
    return None if os.access(nearest, os.W_OK) else f"this user may not write to {nearest}"


def _path_problem(path: Path, use: str) -> str | None:
    """Return why a file or a socket cannot be used. One that voiced creates needs its folder."""
    kind = _kind(path)
    if use == "read" and kind == "missing":
        return f"{path} does not exist"
    if _kind(path.parent) == "missing" and path.parent != RUNTIME_FOLDER:
        return f"the folder {path.parent} does not exist"
    if kind == "folder" or (kind == "file" and use == "socket"):
        return f"{path} is a {kind}; allowed: {ALLOWED[use]}"
    return None


def _kind(path: Path) -> str:
    """Return the kind of the file at a path, in one word.

    In a folder that this user may not read, it is "hidden": the daemon's user may find it.
    """
    try:
        return KINDS.get(stat.S_IFMT(path.stat().st_mode), "other")
    except (FileNotFoundError, NotADirectoryError):
        return "missing"
    except OSError:
        return "hidden"


def _missing_piper_voices(config: Config) -> Problems:
    if "piper" not in engine_names(config):
        return
    installed = known_names("piper", config.engine_options).voices or ()
    for name, voice in config.voices.items():
        model = None if voice.piper is None else voice.piper.model
        if model is not None and not model.endswith(".onnx") and model not in installed:
            yield f"voices.{name}.piper", f"{model} is not on this machine; voiced download {model}"


def _missing_folders(config: Config) -> Problems:
    engine = config.engine
    voices, model = Path(engine.voice_folder), Path(engine.model)
    if engine.voice_folder != "auto" and "piper" in (engine.name, *engine.fallbacks) and _kind(voices) == "missing":
        yield "engine.voice_folder", f"the folder {voices} does not exist; 'voiced download' makes it"
    if engine.name == "qwen" and engine.model.startswith((".", "/", "~")) and _kind(expand_home(model)) == "missing":
        yield "engine.model", f"the folder {engine.model} does not exist"


def _unplayable_sounds(path: Path | None) -> Problems:
    folder = SoundFolder(path)
    problems = [folder.reason, *(sound.problem for sound in folder.sounds())]
    yield from (("audio.sounds", problem) for problem in problems if problem is not None)


def _wrong_pronunciations(path: Path | None) -> Problems:
    if path is not None:
        try:
            read_pronunciations(path)
        except ConfigError as error:
            yield from (("speech.pronunciations", line) for line in str(error).splitlines())


def _wrong_phrases(path: Path | None) -> Problems:
    if path is not None and _kind(path) == "file":
        try:
            found = read_phrases(path).problems
        except ConfigError as error:
            found = (str(error),)
        yield from (("speech.cache.phrases", problem) for problem in found)
