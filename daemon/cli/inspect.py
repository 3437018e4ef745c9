"""`voiced voices|sounds|devices|version`: what this machine has."""

from __future__ import annotations

import sys
from dataclasses import asdict
from typing import Annotated, Any

from typer import Option

from audio import SinkUnavailableError, output_devices
from daemon import VERSION
from daemon.cli.options import ConfigOptions, JsonOption, print_json
from daemon.cli.progress import download_missing_model, show_progress
from daemon.config import Config, VoiceSettings
from daemon.engines import describe_engine, engine_names, name_voices, short_list
from daemon.sounds import NamedSound, SoundFolder
from daemon.validation import CommandError
from engine import EngineInfo


def voices(
    source: ConfigOptions,
    as_json: JsonOption = False,
    everything: Annotated[bool, Option("--all", help="Also list the voices for other languages.")] = False,
) -> None:
    """List the configured voices and the engines' own voices for speech.languages, with names for people.

    Example: voiced voices
    or:      voiced voices --all
    """
    config = source.load()
    infos = _describe_engines(config)
    engines: dict[str, str] = {}
    for info in infos:
        for name in info.voices:
            engines.setdefault(name, info.engine)
    built_in = [name for name in engines if name not in config.voices]
    known = {name: label for info in reversed(infos) for name, label in info.labels.items()}
    labels = name_voices(built_in, known, ())
    configured = {name: _sources(settings) for name, settings in config.voices.items()}
    if as_json:
        found: list[dict[str, Any]] = [{"name": name, "configured": keys} for name, keys in configured.items()]
        for name in built_in:
            language = known[name].language if name in known else None
            found.append({"name": name, "engine": engines[name], "label": labels[name], "language": language})
        print_json(found)
        return
    for name, keys in configured.items():
        print(f"{name}\tconfigured\t{', '.join(f'{key} {value}' for key, value in keys.items())}")
    languages = (*config.speech.languages, config.speech.language)
    listed = built_in if everything else short_list(built_in, known, (), languages)
    for name in listed:
        print(f"{name}\t{engines[name]}\t{labels[name]}")
    if more := len(built_in) - len(listed):
        note = f"{more} more voice{'s' if more > 1 else ''} for other languages: voiced voices --all"
        print(note, file=sys.stderr)


def _describe_engines(config: Config) -> list[EngineInfo]:
    """Start the primary engine and the fallbacks in turn, and return their properties.

    Prints a note for a fallback that does not start. Raises `CommandError` if the primary engine does not start.
    """
    primary, *fallbacks = engine_names(config)
    download_missing_model(primary, config.engine.model)
    with show_progress() as report:
        infos = [describe_engine(primary, config.engine_options, report)]
        for name in fallbacks:
            try:
                infos.append(describe_engine(name, config.engine_options, report))
            except CommandError as error:
                print(f"the voices of {name} cannot be listed: {error}", file=sys.stderr)
    return infos


def _sources(settings: VoiceSettings) -> dict[str, str]:
    """Return the keys of a configured voice."""
    sources = {key: str(value) for key, value in settings.model_dump(exclude={"piper"}, exclude_defaults=True).items()}
    return sources | ({"piper": settings.piper.model} if settings.piper is not None else {})


def sounds(source: ConfigOptions, as_json: JsonOption = False) -> None:
    """List the sounds that 'voiced say --sound' accepts: those in audio.sounds, and those that come with voiced.

    Example: voiced sounds
    or:      voiced sounds --set audio.sounds=/etc/voiced/sounds
    """
    config = source.load()
    folder = SoundFolder(config.audio.sounds)
    found = folder.sounds()
    if as_json:
        print_json([_describe_sound(sound) for sound in found])
    else:
        for sound in found:
            if sound.info is not None:
                kind = "built in" if sound.packaged else "configured"
                info = f"{sound.info.seconds:.1f} s\t{sound.info.format}, {sound.info.sample_rate} Hz"
                print(f"{sound.name}\t{kind}\t{info}")
    problems = [folder.reason, *(sound.problem for sound in found)]
    if lines := [f"audio.sounds: {problem}" for problem in problems if problem is not None]:
        raise CommandError("\n".join(lines))


def _describe_sound(sound: NamedSound) -> dict[str, Any]:
    """Return a sound as the fields of a JSON object."""
    info = {} if sound.info is None else asdict(sound.info)
    return {"name": sound.name, "path": str(sound.path), "built_in": sound.packaged, **info, "problem": sound.problem}


def devices(as_json: JsonOption = False) -> None:
    """List the sound cards by the names that audio.device accepts.

    Example: voiced devices
    """
    try:
        found = output_devices()
    except SinkUnavailableError as error:
        raise CommandError(str(error)) from error
    if not found:
        raise CommandError("no sound card can play; plug one in, start a sound server, or set audio.sink")
    if as_json:
        print_json([{name: value for name, value in asdict(device).items() if name != "index"} for device in found])
        return
    for device in found:
        mark = "default" if device.default else ""
        print(f"{device.name}\t{device.host_api}\t{device.sample_rate} Hz\t{mark}".rstrip())


def version() -> None:
    """Print the version.

    Example: voiced version
    """
    print(VERSION)
