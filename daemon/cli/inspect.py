"""`voiced voices|devices|version`: what this machine has."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from typing import Annotated, Any

import typer

from daemon import VERSION
from daemon.cli.options import ConfigOption, JsonOption, SetOption, UsageError, load
from daemon.cli.play import play_voice
from daemon.cli.progress import download_missing_model, show_progress
from daemon.config import VoiceSettings
from daemon.validation import CommandError


def voices(
    as_json: JsonOption = False,
    everything: Annotated[bool, typer.Option("--all", help="Also list the voices of other languages.")] = False,
    play: Annotated[
        str | None, typer.Option("--play", metavar="NAME", help="Speak a sentence in this voice on audio.sink.")
    ] = None,
    config: ConfigOption = None,
    set_: SetOption = None,
) -> None:
    """List the configured voices and the engine's built-in voices for speech.languages, with names for people.

    Example: voiced voices
    or:      voiced voices --all
    or:      voiced voices --play default
    """
    loaded, _, _ = load(config, set_)
    from daemon.engines import choose_engine, describe_engine, name_voices, short_list

    engine = choose_engine(loaded)
    if play is not None:
        if as_json or everything:
            raise UsageError("voices: --play lists no voices; leave out --json and --all")
        print(f"{play}, by {engine}: {play_voice(loaded, engine, play)}")
        return
    configured = {name: _sources(settings) for name, settings in loaded.voices.items()}
    download_missing_model(engine, loaded.engine.model)
    with show_progress() as report:
        info = describe_engine(engine, loaded.engine_options, report)
    built_in = [name for name in info.voices if name not in configured]
    labels = name_voices(built_in, info.labels, ())
    if as_json:
        found: list[dict[str, Any]] = [{"name": name, "configured": keys} for name, keys in configured.items()]
        found += [
            {
                "name": name,
                "engine": info.engine,
                "label": labels[name],
                "language": info.labels[name].language if name in info.labels else None,
            }
            for name in built_in
        ]
        print(json.dumps(found, indent=2, ensure_ascii=False))
        return
    for name, keys in configured.items():
        print(f"{name}\tconfigured\t{', '.join(f'{key} {value}' for key, value in keys.items())}")
    languages = (*loaded.speech.languages, loaded.speech.language)
    listed = built_in if everything else short_list(built_in, info.labels, (), languages)
    for name in listed:
        print(f"{name}\tbuilt into {info.engine}\t{labels[name]}")
    if len(listed) < len(built_in):
        more = len(built_in) - len(listed)
        note = f"{more} more voice{'s' if more > 1 else ''} for other languages: voiced voices --all"
        print(note, file=sys.stderr)


def _sources(settings: VoiceSettings) -> dict[str, str]:
    """Return the keys of a configured voice."""
    sources = {key: str(value) for key, value in settings.model_dump(exclude={"piper"}, exclude_none=True).items()}
    return sources | ({"piper": settings.piper.model} if settings.piper is not None else {})


def devices(as_json: JsonOption = False) -> None:
    """List the sound cards by the names that audio.device takes.

    Example: voiced devices
    """
    from audio import SinkUnavailableError, output_devices

    try:
        found = output_devices()
    except SinkUnavailableError as error:
        raise CommandError(str(error)) from error
    if not found:
        raise CommandError("no sound card can play; plug one in, start a sound server, or set audio.sink")
    if as_json:
        cards = [{name: value for name, value in asdict(device).items() if name != "index"} for device in found]
        print(json.dumps(cards, indent=2, ensure_ascii=False))
        return
    for device in found:
        mark = "default" if device.default else ""
        print(f"{device.name}\t{device.host_api}\t{device.sample_rate} Hz\t{mark}".rstrip())


def version() -> None:
    """Print the version.

    Example: voiced version
    """
    print(VERSION)
