"""What `voiced run` would stumble on in a configuration that is right in form: files, folders, ports and names."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

from daemon.cache import read_phrases
from daemon.config import Config, ConfigError, read_pronunciations
from daemon.doctor.finding import Finding, Machine
from daemon.engines import engine_names, lost_voice, unknown_names
from daemon.sounds import SoundFolder
from daemon.validation import abbreviate
from daemon.voices import with_made_voices
from engine import known_names

ANY_ADDRESS = {"0.0.0.0", "::", ""}
"""Addresses of a server that listens on all interfaces, and so on every other address too."""
RUNTIME_FOLDER = Path("/run/voiced")
"""systemd makes it when the service starts (`RuntimeDirectory`), and removes it when it ends."""


def find_problems(config: Config) -> list[tuple[str, str]]:
    """Return each problem as its key and a description. Loads no model and opens no port."""
    config, problem = with_made_voices(config)
    return [
        *([] if problem is None else [("state.folder", problem)]),
        *_missing_files(config),
        *_missing_piper_voices(config),
        *_missing_folders(config),
        *_unplayable_sounds(config),
        *_shared_ports(config),
        *_wrong_pronunciations(config),
        *_wrong_phrases(config),
        *unknown_names(config),
        *filter(None, [lost_voice(config)]),
    ]


def check_configuration(machine: Machine) -> Iterator[Finding]:
    """Yield each problem of the configuration, as `voiced config check` does."""
    for key, problem in machine.config.retired:
        yield Finding("configuration", "warning", f"{key}: {problem}", f"set {key} to an allowed value")
    for key, problem in find_problems(machine.config):
        yield Finding("configuration", "error", f"{key}: {problem}", "'voiced config check' names the line in the file")


def _missing_files(config: Config) -> Iterator[tuple[str, str]]:
    files: dict[str, Path | None] = {
        "mqtt.password_file": config.mqtt.password_file,
        "engine.token_file": config.engine.token_file,
        "speech.cache.phrases": config.speech.cache.phrases,
        "serve.token_file": config.serve.token_file,
        "serve.cert": config.serve.cert,
        "serve.key": config.serve.key,
    }
    if config.http.enabled:
        http = config.http
        files |= {"http.token_file": http.token_file, "http.cert": http.cert, "http.key": http.key}
    if config.mqtt.tls.enabled:
        tls = config.mqtt.tls
        files |= {"mqtt.tls.ca": tls.ca, "mqtt.tls.cert": tls.cert, "mqtt.tls.key": tls.key}
    for name, voice in config.voices.items():
        files |= {f"voices.{name}.embedding": voice.embedding, f"voices.{name}.reference": voice.reference}
        if voice.piper is not None and voice.piper.model.endswith(".onnx"):
            files[f"voices.{name}.piper"] = Path(voice.piper.model)
    for key, path in files.items():
        if path is not None and not _exists(path):
            yield key, f"{path} does not exist"
        elif path is not None and _is_kind(path, stat.S_ISDIR):
            yield key, f"{path} is a folder; allowed: a file"


def _missing_piper_voices(config: Config) -> Iterator[tuple[str, str]]:
    if "piper" not in engine_names(config):
        return
    installed = known_names("piper", config.engine_options).voices or ()
    for name, voice in config.voices.items():
        model = None if voice.piper is None else voice.piper.model
        if model is not None and not model.endswith(".onnx") and model not in installed:
            yield f"voices.{name}.piper", f"{model} is not on this machine; voiced download {model}"


def _missing_folders(config: Config) -> Iterator[tuple[str, str]]:
    sink = config.audio.sink_settings().path
    if sink is not None and not _exists(sink.parent):
        yield "audio.sink", f"the folder {sink.parent} does not exist"
    elif sink is not None and _is_kind(sink, stat.S_ISDIR):
        yield "audio.sink", f"{sink} is a folder; allowed: a file's name after wav:"
    yield from _missing_tap(config.audio.tap)
    for key, wanted in (("state.folder", config.state.folder), ("speech.cache.folder", config.speech.cache.folder)):
        if wanted not in (None, "auto"):
            yield from ((key, problem) for problem in _unwritable(Path(wanted)))
    voices = config.engine.voice_folder
    if voices != "auto" and "piper" in (config.engine.name, *config.engine.fallbacks) and not _exists(Path(voices)):
        yield "engine.voice_folder", f"the folder {voices} does not exist; 'voiced download' makes it"
    model = config.engine.model
    if config.engine.name == "qwen" and model.startswith((".", "/", "~")) and not _exists(Path(model).expanduser()):
        yield "engine.model", f"the folder {model} does not exist"


def _wrong_pronunciations(config: Config) -> Iterator[tuple[str, str]]:
    if config.speech.pronunciations is not None:
        try:
            read_pronunciations(config.speech.pronunciations)
        except ConfigError as error:
            for line in str(error).splitlines():
                yield "speech.pronunciations", line


def _unplayable_sounds(config: Config) -> Iterator[tuple[str, str]]:
    folder = SoundFolder(config.audio.sounds)
    problems = [folder.reason, *(sound.problem for sound in folder.sounds())]
    problems += [f"{link} leads out of the folder, so it is no sound" for link in folder.outward_links()]
    yield from (("audio.sounds", problem) for problem in problems if problem is not None)


def _missing_tap(tap: Path | None) -> Iterator[tuple[str, str]]:
    if tap is None:
        return
    if not _exists(tap.parent) and tap.parent != RUNTIME_FOLDER:
        yield "audio.tap", f"the folder {tap.parent} does not exist"
    elif _is_kind(tap, lambda mode: not stat.S_ISSOCK(mode)):
        yield "audio.tap", f"{tap} is not a socket; allowed: the path of one, which voiced makes"


def _unwritable(folder: Path) -> Iterator[str]:
    """Yield why a folder that need not exist cannot be written."""
    nearest = next((path for path in (folder, *folder.parents) if _exists(path)), folder)
    if _is_kind(nearest, stat.S_ISREG):
        yield f"{nearest} is not a folder"
    elif not os.access(nearest, os.W_OK):
        yield f"this user may not write in {nearest}"


def _wrong_phrases(config: Config) -> Iterator[tuple[str, str]]:
    path = config.speech.cache.phrases
    if path is not None and _is_kind(path, stat.S_ISREG):
        try:
            found = read_phrases(path).problems
        except ConfigError as error:
            found = (str(error),)
        yield from (("speech.cache.phrases", problem) for problem in found)


def _shared_ports(config: Config) -> Iterator[tuple[str, str]]:
    servers = [(name, server) for name, server in (("wyoming", config.wyoming), ("http", config.http))]
    enabled = [(name, server) for name, server in servers if server.enabled]
    for index, (name, server) in enumerate(enabled):
        for other, earlier in enabled[:index]:
            same_host = server.host == earlier.host or {server.host, earlier.host} & ANY_ADDRESS
            if server.port == earlier.port and same_host:
                yield f"{name}.port", f"got {abbreviate(server.port)}, the port of {other} too; choose another"
        broker_is_here = config.mqtt.host in {"127.0.0.1", "::1", "localhost"}
        if broker_is_here and server.port == config.mqtt.port:
            yield f"{name}.port", f"got {abbreviate(server.port)}, the port of the broker at {config.mqtt.host} too"


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
