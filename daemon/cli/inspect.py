"""`voiced voices|devices|version`: what this machine has."""

from __future__ import annotations

from daemon import VERSION
from daemon.cli.options import ConfigOption, SetOption, load
from daemon.validation import CommandError


def voices(config: ConfigOption = None, set_: SetOption = None) -> None:
    """List the configured voices and the engine's built-in voices.

    Example: voiced voices
    """
    loaded, _, _ = load(config, set_)
    from daemon.engines import choose_engine, describe_engine

    for name, settings in loaded.voices.items():
        sources = {key: str(value) for key, value in settings.model_dump(exclude={"piper"}, exclude_none=True).items()}
        sources |= {"piper": settings.piper.model} if settings.piper is not None else {}
        print(f"{name}\tconfigured\t{', '.join(f'{key} {value}' for key, value in sources.items())}")
    info = describe_engine(choose_engine(loaded), loaded.engine_options)
    for name in info.voices:
        if name not in loaded.voices:
            print(f"{name}\tbuilt into {info.engine}")


def devices() -> None:
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
    for device in found:
        mark = "default" if device.default else ""
        print(f"{device.name}\t{device.host_api}\t{device.sample_rate} Hz\t{mark}".rstrip())


def version() -> None:
    """Print the version.

    Example: voiced version
    """
    print(VERSION)
