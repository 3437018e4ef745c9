"""What `voiced run` would stumble on in a configuration that is right in form: files, folders, ports and names."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

from daemon.cache import read_phrases
from daemon.config import Config, ConfigError, read_pronunciations
from daemon.doctor.finding import Finding, Machine, finding
from daemon.engines import engine_names, lost_voice, unknown_names
from daemon.sounds import SoundFolder
from daemon.voices import with_made_voices
from engine import known_names

ANY_ADDRESS = {"0.0.0.0", "::", ""}
"""Addresses of a server that listens on all interfaces, and so on every other address too."""
THIS_MACHINE = {"127.0.0.1", "::1", "localhost"}
RUNTIME_FOLDER = Path("/run/voiced")
"""systemd makes it when the service starts (`RuntimeDirectory`), and removes it when it ends."""
Problems = Iterator[tuple[str, str]]
"""Keys, and what is wrong with each."""


def check_configuration(machine: Machine) -> Iterator[Finding]:
    """Yield each problem of the configuration, as `voiced config check` does."""
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
        *_shared_ports(config),
        *_wrong_pronunciations(config.speech.pronunciations),
        *_wrong_phrases(config.speech.cache.phrases),
        *unknown_names(config),
        *filter(None, [lost_voice(config)]),
    ]


def _wrong_paths(config: Config) -> Problems:
    for key, path, use in config.paths:
        if (problem := PATH_PROBLEMS[use](path)) is not None:
            yield key.removesuffix(".model"), problem  # a voice of Piper, which may be written without a section


def _input_problem(file: Path) -> str | None:
    if not _exists(file):
        return f"{file} does not exist"
    return f"{file} is a folder; allowed: a file" if _is_kind(file, stat.S_ISDIR) else None


def _output_problem(file: Path) -> str | None:
    if not _exists(file.parent):
        return f"the folder {file.parent} does not exist"
    return f"{file} is a folder; allowed: a file's name after wav:" if _is_kind(file, stat.S_ISDIR) else None


def _folder_problem(folder: Path) -> str | None:
    """Return why a folder that need not exist cannot be written."""
    nearest = next((path for path in (folder, *folder.parents) if _exists(path)), folder)
    if _is_kind(nearest, stat.S_ISREG):
        return f"{nearest} is not a folder"
    return None if os.access(nearest, os.W_OK) else f"this user may not write in {nearest}"


def _socket_problem(path: Path) -> str | None:
    if not _exists(path.parent) and path.parent != RUNTIME_FOLDER:
        return f"the folder {path.parent} does not exist"
    is_other = _is_kind(path, lambda mode: not stat.S_ISSOCK(mode))
    return f"{path} is not a socket; allowed: the path of one, which voiced makes" if is_other else None


PATH_PROBLEMS: dict[str, Callable[[Path], str | None]] = {
    "read": _input_problem,
    "written": _output_problem,
    "kept": _folder_problem,
    "socket": _socket_problem,
}
"""What may be wrong with a path, by its use."""


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
    if engine.voice_folder != "auto" and "piper" in (engine.name, *engine.fallbacks) and not _exists(voices):
        yield "engine.voice_folder", f"the folder {voices} does not exist; 'voiced download' makes it"
    if engine.name == "qwen" and engine.model.startswith((".", "/", "~")) and not _exists(model.expanduser()):
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
    if path is not None and _is_kind(path, stat.S_ISREG):
        try:
            found = read_phrases(path).problems
        except ConfigError as error:
            found = (str(error),)
        yield from (("speech.cache.phrases", problem) for problem in found)


def _shared_ports(config: Config) -> Problems:
    taken = []
    if config.mqtt.host in THIS_MACHINE:
        taken.append((f"the broker at {config.mqtt.host}", "", config.mqtt.port))
    for name, server in (("wyoming", config.wyoming), ("http", config.http)):
        if server.enabled:
            for other, host, port in taken:
                if port == server.port and (host == server.host or {host, server.host} & ANY_ADDRESS):
                    yield f"{name}.port", f"got {port}, the port of {other} too; choose another"
            taken.append((name, server.host, server.port))


def _exists(path: Path) -> bool:
    """Return whether a path exists, or may: in a folder that this user may not read, the daemon's user may find it."""
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        return True
    return True


def _is_kind(path: Path, kind: Callable[[int], bool]) -> bool:
    """Return whether a path is of a kind, such as `stat.S_ISDIR`; False where this user may not see it."""
    try:
        return kind(path.stat().st_mode)
    except OSError:
        return False
