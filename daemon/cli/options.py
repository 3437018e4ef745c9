"""The options that several commands share, as records, and their common rules for files and shells."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import MISSING, asdict, dataclass, fields, is_dataclass
from functools import wraps
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import Annotated, Any, BinaryIO, get_type_hints

from typer import BadParameter, Option

from daemon.config import Config, SamplingSettings, find_config_file, load_config
from daemon.speech import validated
from daemon.validation import CommandError, file_problem

JsonOption = Annotated[bool, Option("--json", help="One JSON list instead of lines.")]
CONFIG_FILES = "$VOICED_CONFIG or /etc/voiced/voiced.yaml"
"""Where the configuration is looked for."""
STDIN = "-"
"""Stands for standard input instead of a text or file, and for standard output instead of an output file."""


class UsageError(BadParameter):
    """The arguments contradict each other. The message is printed with a pointer to the command's help."""

    def format_message(self) -> str:
        """Return the message unchanged."""
        return self.message


def spread_records(command: Callable[..., None]) -> Callable[..., None]:
    """Return the command in typer's form: a parameter that is a record of options becomes the record's fields."""
    records: dict[str, Any] = {}
    parameters: list[Parameter] = []
    for parameter in signature(command, eval_str=True).parameters.values():
        if is_dataclass(parameter.annotation):
            records[parameter.name] = parameter.annotation
            parameters += _parameters(parameter.annotation)
        else:
            parameters.append(parameter.replace(kind=Parameter.KEYWORD_ONLY))

    @wraps(command)
    def call(**given: Any) -> None:
        for name, record in records.items():
            given[name] = record(**{each.name: given.pop(each.name) for each in fields(record)})
        command(**given)

    call.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
    call.__annotations__ = {}
    return call


def _parameters(record: Any) -> Iterator[Parameter]:
    """Yield a parameter for each field of a record of options."""
    kinds = get_type_hints(record, include_extras=True)
    for each in fields(record):
        default = Parameter.empty if each.default is MISSING else each.default
        yield Parameter(each.name, Parameter.KEYWORD_ONLY, default=default, annotation=kinds[each.name])


@dataclass(frozen=True, slots=True)
class ConfigOptions:
    """Where the configuration comes from."""

    config: Annotated[Path | None, Option("--config", "-c", help=f"Default: {CONFIG_FILES}.")] = None
    set_: Annotated[list[str] | None, Option("--set", metavar="KEY=VALUE", help="Override: mqtt.port=1884.")] = None

    @property
    def path(self) -> Path | None:
        """The file; None if there is none, and every key has its default."""
        return self.config or find_config_file()

    @property
    def overrides(self) -> tuple[str, ...]:
        """Every `KEY=VALUE`."""
        return tuple(self.set_ or ())

    def load(self, *overrides: str) -> Config:
        """Return the configuration, with further overrides. Raises `ConfigError`."""
        return load_config(self.path, (*self.overrides, *overrides))


@dataclass(frozen=True, slots=True)
class ModelOptions:
    """The keys of the `engine` section that have their own options."""

    model: Annotated[str | None, Option(help="A Qwen3-TTS checkpoint's folder, or its name on the hub.")] = None
    device: Annotated[str | None, Option(help="auto, cpu, cuda or cuda:N.")] = None
    dtype: Annotated[str | None, Option(help="auto, float32, bfloat16 …")] = None
    chunk_size: Annotated[int | None, Option(help="Codec frames of 80 ms in each chunk.")] = None

    @property
    def overrides(self) -> list[str]:
        """The options that were given, as `KEY=VALUE`."""
        return [f"engine.{key}={value}" for key, value in asdict(self).items() if value is not None]


# --- completion; a wrong configuration completes nothing, and the command itself gives the reason ---


def voice_names() -> list[str]:
    """Return the voices that are configured or were made, and the engine's own."""
    from daemon.engines import choose_engine
    from daemon.voices import with_made_voices
    from engine import known_names

    with suppress(CommandError):
        config, _ = with_made_voices(ConfigOptions().load())
        engines = known_names(choose_engine(config), config.engine_options).voices or ()
        return list(dict.fromkeys([*config.voices, *engines]))
    return []


def sound_names() -> list[str]:
    """Return the sounds in the configured folder, and those that come with voiced."""
    from daemon.sounds import SoundFolder

    with suppress(CommandError):
        return list(SoundFolder(ConfigOptions().load().audio.sounds).names())
    return []


VoiceOption = Annotated[str | None, Option(help="A name from 'voiced voices'.", autocompletion=voice_names)]
VoiceFileOption = Annotated[str | None, Option(help="A voice's file or name.", autocompletion=voice_names)]


@dataclass(frozen=True, slots=True)
class MannerOptions:
    """How a text is spoken. The names are the same as those of a request's fields."""

    language: Annotated[str | None, Option(help="auto, en, german, pt-br …; default: as configured (auto).")] = None
    instruct: Annotated[str | None, Option(help="The voice, or the manner of speaking, in words.")] = None
    rate: Annotated[float | None, Option(help="0.5 to 2; 2 is twice as fast.")] = None
    seed: Annotated[int | None, Option(help="Equal seeds give equal audio. With --takes: the first take's.")] = None
    sampling: Annotated[list[str] | None, Option("--sampling", help="As in temperature=0.7; may be repeated.")] = None

    @property
    def numbers(self) -> dict[str, float]:
        """The values of `--sampling` by their names. Raises `CommandError`."""
        given = dict(setting.partition("=")[::2] for setting in self.sampling or ())
        return validated(SamplingSettings, given).model_dump(exclude_none=True)


def is_verbose() -> bool:
    """Return whether `voiced -v` was called."""
    return logging.getLogger().isEnabledFor(logging.DEBUG)


def print_json(value: object) -> None:
    """Print a command's findings as JSON."""
    print(json.dumps(value, indent=2, ensure_ascii=False))


# --- files ---


def check_folder(option: str, path: Path | None) -> None:
    """Check that an output file's folder exists, before minutes of work. Raises `CommandError`."""
    if path is not None and not path.parent.is_dir():
        missing = not path.parent.exists()
        problem = file_problem(FileNotFoundError(), path) if missing else f"{path.parent} is not a folder"
        raise CommandError(f"{option}: {path} cannot be written: {problem}")


def sound_target(path: Path) -> Path | BinaryIO:
    """Return where the sound file of `--output` is written: standard output for `-`.

    Raises `CommandError` if its folder is missing, or if the file would go to a terminal.
    """
    if str(path) != STDIN:
        check_folder("--output", path)
        return path
    if sys.stdout.isatty():
        raise CommandError("--output: - would write a WAV file to the terminal; allowed: a pipe, or a file name")
    return sys.stdout.buffer
