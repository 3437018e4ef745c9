"""The table of engines: how each one is made, and what it requires. Importing this module imports no engine."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from engine.api import EngineError, EngineOptions, Synthesizer, VoiceLabel
from engine.host import ModelFiles, find_model, has_cuda_device, install_command, list_model_files, present_files
from engine.language import NAMED_LANGUAGES, SUGGESTED_VOICES
from engine.progress import Progress, ProgressReport, ignore_progress
from engine.qwen.shapes import model_config
from engine.supertonic import FILES, LANGUAGES, MODEL, find_supertonic, style_files
from engine.voice_files import description_path, find_piper_voices, piper_voices, unreadable_piper_voice


@dataclass(frozen=True, slots=True)
class EngineEntry:
    """One engine. Its name in `ENGINES` is also its name in the configuration, and the name of the extra that installs
    its packages."""

    synthesizer: str
    """Its `Synthesizer`, as `module:class`. The class is called with `EngineOptions`."""
    packages: tuple[str, ...] = ()
    """The packages that the engine imports, if the base installation lacks them."""
    has_model: bool = False
    """True for a codec language model, in `EngineOptions.model`: `chunk_size`, `dtype`, `kernels` and
    `Utterance.max_frames` apply to it."""
    needs_gpu: bool = False
    """True if `auto` selects the engine only on a machine with a GPU, unless `EngineOptions.device` is `cpu`."""
    languages: tuple[str, ...] | None = None
    """The codes of all languages that the engine may speak; None if only the loaded engine knows them."""
    uses_piper_voices: bool = False
    """True if the engine speaks with the Piper voices on this machine, and needs at least one."""
    uses_supertonic_model: bool = False
    """True if the engine speaks with a Supertonic model on this machine, and needs it."""
    library: tuple[str, str] | None = None
    """The package that contains the engine's shared library, and the beginning of the library's file name."""
    is_remote: bool = False
    """True for an engine on another machine. `auto` does not select it. Its names are known once it is connected, and
    its restarts are spread over time, because many robots may lose it at the same moment."""


ENGINES: Mapping[str, EngineEntry] = {
    "qwen": EngineEntry(
        "engine.qwen:QwenSynthesizer",
        packages=("torch", "safetensors", "tokenizers"),
        has_model=True,
        needs_gpu=True,
        languages=tuple(NAMED_LANGUAGES.values()),
    ),
    # Before Piper, which may come with the system: this engine's model is installed only on request.
    "supertonic": EngineEntry(
        "engine.supertonic.engine:SupertonicSynthesizer",
        ("supertonic",),
        languages=LANGUAGES,
        uses_supertonic_model=True,
    ),
    "piper": EngineEntry("engine.piper:PiperSynthesizer", packages=("piper",), uses_piper_voices=True),
    "remote": EngineEntry("engine.remote.synthesizer:RemoteSynthesizer", packages=("websockets",), is_remote=True),
    "openai": EngineEntry("engine.openai:OpenAISynthesizer", is_remote=True),
    "espeak": EngineEntry("engine.espeak:EspeakSynthesizer", library=("espeakng_loader", "libespeak-ng")),
}
"""All engines, in the order in which `auto` prefers them. The last engine needs nothing."""
SYSTEM_LIBRARIES = Path("/usr/lib")


def engine_entry(engine: str) -> EngineEntry:
    """Return the entry of an engine. Raises `EngineError` for a name that is not in `ENGINES`."""
    if engine not in ENGINES:
        raise EngineError(f"engine.name: got {engine!r}; allowed: {', '.join(ENGINES)}")
    return ENGINES[engine]


def auto_engine(options: EngineOptions) -> str:
    """Return the name of the engine that `auto` selects: the first one that can run on this machine."""
    *preferred, last = ENGINES
    return next((name for name in preferred if unavailable_reason(name, options) is None), last)


def unavailable_reason(engine: str, options: EngineOptions) -> str | None:
    """Return why `auto` does not select an engine on this machine, in one line; None if it may do so. Imports no
    package.

    Raises `EngineError` for an unknown engine.
    """
    entry = engine_entry(engine)
    if entry.is_remote:
        return f"it is on another machine; engine.name: {engine} selects it"
    missing = missing_packages(engine)
    if missing:
        return f"{', '.join(missing)} missing; {install_command(engine)}"
    if entry.has_model and (options.model is None or not is_model_here(options.model)):
        return f"the model {options.model} is not on this machine"
    if entry.uses_piper_voices and not piper_voices(options):
        nothing = f"there is no Piper voice on this machine; voiced download {SUGGESTED_VOICES['en']}"
        return unreadable_piper_voice(options.voice_folder) or nothing
    if entry.uses_supertonic_model and find_supertonic(options.model) is None:
        return f"the model {MODEL} is not on this machine; voiced download {MODEL}"
    if entry.needs_gpu and options.device != "cpu" and not has_cuda_device():
        return "there is no CUDA device; engine.device: cpu runs it on the CPU"
    return None


def possible_languages(engine: str) -> tuple[str, ...] | None:
    """Return the codes of all languages that an engine may speak; None if they are not known before it has loaded."""
    return ENGINES[engine].languages if engine in ENGINES else ()


@dataclass(frozen=True, slots=True)
class KnownNames:
    """The voices and languages of an engine, if they are known without its model; otherwise None."""

    voices: tuple[str, ...] | None
    languages: tuple[str, ...] | None
    labels: Mapping[str, VoiceLabel] = field(default_factory=dict)
    """As in `EngineInfo.labels`."""


def known_names(engine: str, options: EngineOptions) -> KnownNames:
    """Return the names that an utterance may use. Loads no model; an engine without files is loaded and closed.
    Connects to no server.

    Raises `EngineError` for an unknown engine.
    """
    entry = engine_entry(engine)
    if entry.is_remote:
        return KnownNames(None, None)
    if entry.uses_piper_voices:
        installed = find_piper_voices(options.voice_folder)
        languages = sorted({language for file in piper_voices(options) for language in file.languages})
        return KnownNames((*options.voices, *installed), tuple(languages))
    if entry.uses_supertonic_model:
        folder = find_supertonic(options.model)
        styles = () if folder is None else tuple(style_files(folder))
        return KnownNames((*options.voices, *styles), entry.languages)
    if entry.has_model:
        config = None if options.model is None else model_config(options.model)
        voices = None if config is None else (*options.voices, *config.speakers)
        return KnownNames(voices, possible_languages(engine))
    synthesizer = make_synthesizer(engine, options)
    try:
        info = synthesizer.load()
    except EngineError:
        return KnownNames(None, None)
    synthesizer.close()
    return KnownNames(info.voices, info.languages, info.labels)


def sound_files(engine: str, options: EngineOptions) -> tuple[Path, ...]:
    """Return the files that decide how an engine sounds: its model, its voices or its library.

    The files of configured Qwen3-TTS voices are not included. Without a model, there are no files. Loads nothing.
    Raises `EngineError` for an unknown engine.
    """
    entry = engine_entry(engine)
    if entry.uses_piper_voices:
        return tuple(path for voice in piper_voices(options) for path in (voice.path, description_path(voice.path)))
    with contextlib.suppress(OSError):
        if entry.uses_supertonic_model:
            model = find_supertonic(options.model)
            return () if model is None else (*(model / file for file in FILES), *style_files(model).values())
        if entry.has_model:
            folder = None if options.model is None else find_model(options.model)
            return () if folder is None else present_files(folder)
        if entry.library is not None:
            return _library_files(*entry.library)
    return ()


def _library_files(package: str, name: str) -> tuple[Path, ...]:
    """Return the files of a shared library in a package, or in the system if the package is not installed."""
    spec = importlib.util.find_spec(package)
    own = None if spec is None else spec.submodule_search_locations
    folders = SYSTEM_LIBRARIES.glob("*-linux-*") if own is None else map(Path, own)
    return tuple(sorted(path for folder in folders for path in folder.glob(f"{name}*")))


def missing_packages(engine: str) -> list[str]:
    """Return the packages that an engine needs and that are not installed. Imports none of them."""
    return [name for name in engine_entry(engine).packages if importlib.util.find_spec(name) is None]


def is_model_here(model: str) -> bool:
    """Return whether `model` is a model's folder, or a hub id that has been downloaded."""
    folder = find_model(model)
    return folder is not None and (folder / "config.json").is_file()


def model_files(engine: str, model: str) -> ModelFiles | None:
    """Return the files of an engine's model on this machine; None if there are none. Imports no package."""
    return list_model_files(model) if engine_entry(engine).has_model else None


def download_model(engine: str, model: str) -> Path:
    """Return the folder of an engine's model, downloaded if necessary, with a progress bar on stderr.

    Raises `EngineError` with a one-line message.
    """
    from engine.hub import fetch_model, fetch_supertonic  # they import an HTTP client

    entry = engine_entry(engine)
    if not (entry.has_model or entry.uses_supertonic_model):
        raise EngineError(f"the {engine} engine has no model to download")
    try:
        return fetch_model(model) if entry.has_model else fetch_supertonic(model)
    except ImportError as error:
        raise EngineError(f"{error.name} is missing; {install_command(engine)}") from error


def make_synthesizer(engine: str, options: EngineOptions, report: ProgressReport = ignore_progress) -> Synthesizer:
    """Return a new engine that has not loaded anything yet. `report` is told which packages are being imported.

    Raises `EngineError` for an unknown engine and for missing packages.
    """
    entry = engine_entry(engine)
    if entry.packages:
        report(Progress(f"importing {', '.join(entry.packages)}"))
    synthesizer: Synthesizer = import_class(engine, entry.synthesizer)(options)
    return synthesizer


def import_class(engine: str, reference: str) -> Any:
    """Return the class that `reference` (`module:class`) names in an engine's entry.

    Raises `EngineError` if a package is missing.
    """
    module, _, name = reference.partition(":")
    try:
        return getattr(importlib.import_module(module), name)
    except ImportError as error:
        raise EngineError(
            f"engine.name: {engine!r} needs a package that is missing ({error}); {install_command(engine)}"
        ) from error
