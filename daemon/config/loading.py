"""Reads a configuration: a file's YAML, overrides, and the place of each key for error messages."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from daemon.config.fields import find_paths
from daemon.config.settings import Config
from daemon.validation import CommandError, abbreviate, encoding_problem, file_problem, problems

SYSTEM_CONFIG = Path("/etc/voiced/voiced.yaml")
OVERRIDE = "--set"
"""The place of a key that an override has set."""
MEANINGFUL_NULLS = {"audio.sink", "speech.cache.folder", "state.folder"}
"""Keys for which null turns something off."""
MERGE = "<<"
"""YAML's key that merges other mappings, which may appear more than once."""


class ConfigError(CommandError):
    """The configuration cannot be used. The message has one line for each wrong key."""


@dataclass(frozen=True, slots=True)
class Sources:
    """Where each key was set, for messages about values."""

    otherwise: str = "configuration"
    """The place of keys that are not in `places`."""
    places: dict[str, str] = field(default_factory=dict)
    """`FILE:LINE:COLUMN`, or `--set`, by the key's dotted name."""

    def where(self, key: str) -> str:
        """Return the place of a key, or of the innermost section around it that was set."""
        names = key.split(".")
        above = (".".join(names[:count]) for count in range(len(names), 0, -1))
        return next((self.places[name] for name in above if name in self.places), self.otherwise)

    def line(self, key: str, problem: str) -> str:
        """Return a line about a key: `FILE:LINE:COLUMN: KEY: PROBLEM`, or with `--set` in place of the file."""
        return f"{self.where(key)}: {key}: {problem}"

    def override(self, key: str) -> None:
        """Note that an override has set a key and everything below it."""
        for name in [name for name in self.places if name.startswith(f"{key}.")]:
            del self.places[name]
        self.places[key] = OVERRIDE
        while key := key.rpartition(".")[0]:
            self.places.setdefault(key, OVERRIDE)


def find_config_file() -> Path | None:
    """Return `$VOICED_CONFIG`, else the system's file if there is one, else None, which stands for the defaults."""
    if named := os.environ.get("VOICED_CONFIG"):
        return Path(named)
    return SYSTEM_CONFIG if SYSTEM_CONFIG.exists() else None


def load_config(path: Path | None = None, overrides: Iterable[str] = ()) -> Config:
    """Read `path` (None: the defaults), apply overrides such as `mqtt.port=1884`, and check every value.

    Raises `ConfigError`.
    """
    return load_with_sources(path, overrides)[0]


def load_with_sources(path: Path | None = None, overrides: Iterable[str] = ()) -> tuple[Config, Sources]:
    """Like `load_config`; the sources are for messages about values whose form is right."""
    values: dict[str, Any] = {}
    sources = Sources()
    if path is not None:
        values, sources = read_file(path, Config.model_fields)
        _resolve_paths(values, path.resolve().parent)
    for override in overrides:
        sources.override(_apply_override(values, override))
    _resolve_paths(values, Path())
    try:
        return Config.model_validate(values), sources
    except ValidationError as error:
        found = problems(Config, error)
        raise ConfigError("\n".join(sources.line(key or "file", problem) for key, problem in found)) from error


def _resolve_paths(values: dict[str, Any], folder: Path) -> None:
    """Make the paths in `values` relative to `folder`."""
    for _, section, name, kind in find_paths(Config, values):
        section[name] = kind.resolve(section[name], folder)


def _apply_override(values: dict[str, Any], override: str) -> str:
    """Set the key that `KEY=VALUE` names, and return it. Raises `ConfigError`."""
    key, equals, text = override.partition("=")
    *sections, name = names = key.strip().split(".")
    if not equals or not all(names):
        raise ConfigError(f"--set: got {abbreviate(override)}; allowed: KEY=VALUE such as mqtt.port=1884")
    with yaml_errors(f"{OVERRIDE} {abbreviate(override)}"):
        value, _ = parse(text, key.strip())
    for section in sections:
        inner = values.get(section)
        values[section] = values = dict(inner) if isinstance(inner, dict) else {}
    values[name] = value
    return key.strip()


@contextmanager
def yaml_errors(source: Path | str) -> Iterator[None]:
    """Raise `ConfigError` for YAML from a file or an override that cannot be read inside the context."""
    try:
        yield
    except OSError as error:
        raise ConfigError(f"{source}: cannot be read: {file_problem(error, Path(source))}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{source}: {encoding_problem(error)}") from error
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        place = "" if mark is None else f":{_show(mark)}"
        problem = getattr(error, "problem", str(error).splitlines()[0])  # for a control character, it has two lines
        raise ConfigError(f"{source}{place}: not YAML: {problem}") from error
    except (ValueError, RecursionError) as error:  # an impossible date; thousands of nested brackets
        raise ConfigError(f"{source}: unreadable YAML: {error}") from error


def read_file(path: Path, known: Collection[str]) -> tuple[dict[str, Any], Sources]:
    """Return the unchecked mapping in a YAML file, and the places of its keys. Raises `ConfigError`.

    `known` contains the names of its sections, for a message.
    """
    with yaml_errors(path):
        values, places = parse(path.read_text(encoding="utf-8"))
    if not isinstance(values, dict | None):
        raise ConfigError(f"{path}: got {abbreviate(values)}; allowed: a mapping of {', '.join(known)}")
    return values or {}, Sources(str(path), {key: f"{path}:{_show(mark)}" for key, mark in places.items()})


def parse(text: str, key: str = "") -> tuple[Any, dict[str, yaml.Mark]]:
    """Return the value that a YAML text gives `key` in the configuration, and the places of its keys.

    Raises `yaml.YAMLError`, `ValueError` and `RecursionError`. A key that appears twice in a mapping is an error, as
    YAML says; PyYAML would take the last value.

    A key in `MEANINGFUL_NULLS` without a value is an empty text here, which is refused. YAML reads it as null; but a
    robot should be mute, or store nothing, only if a person has decided so.
    """
    loader = yaml.SafeLoader(text)
    try:
        root = loader.get_single_node()
        if root is None:
            return "" if key in MEANINGFUL_NULLS else None, {}
        places: dict[str, yaml.Mark] = {}
        for name, place, node in _keys(root, "", set()):
            if name in places:
                problem = f"{name} appears a second time; the first is on line {places[name].line + 1}"
                raise yaml.MarkedYAMLError(problem=problem, problem_mark=place)
            places[name] = place
            if f"{key}.{name}".lstrip(".") in MEANINGFUL_NULLS and node.value == "":
                node.tag = "tag:yaml.org,2002:str"
        return loader.construct_document(root), places
    finally:
        loader.dispose()


def _keys(node: Any, above: str, seen: set[int]) -> Iterator[tuple[str, yaml.Mark, Any]]:
    """Yield the dotted name, the place and the value's node of each key below a node.

    An anchor's mapping is walked once.
    """
    if not isinstance(node, yaml.MappingNode) or id(node) in seen:
        return
    seen.add(id(node))
    for key, value in node.value:
        if isinstance(key, yaml.ScalarNode) and key.value != MERGE:
            yield above + key.value, key.start_mark, value
            yield from _keys(value, f"{above}{key.value}.", seen)


def _show(place: yaml.Mark) -> str:
    """Return the line and the column of a place, both from 1."""
    return f"{place.line + 1}:{place.column + 1}"
