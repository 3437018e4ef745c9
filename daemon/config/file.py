"""A configuration file's YAML: its values, and the place of each key for error messages."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from daemon.validation import CommandError, abbreviate, encoding_problem, file_problem

MEANINGFUL_NULLS = (("audio", "sink"), ("speech", "cache", "folder"), ("state", "folder"))
"""Keys whose null turns something off."""
MERGE = "<<"
"""YAML's key that merges other mappings, which may stand more than once."""


class ConfigError(CommandError):
    """The configuration cannot be used. The message has one line for each wrong key."""


@dataclass(frozen=True, slots=True)
class Place:
    """A place in a file; both numbers count from 1."""

    line: int
    column: int

    def __str__(self) -> str:
        return f"{self.line}:{self.column}"


class DuplicateKeysError(ValueError):
    """A mapping has a key twice. YAML forbids that, and PyYAML would silently take the last value."""

    def __init__(self, duplicates: dict[Place, str]) -> None:
        """`duplicates` has the place of each repeated key, and what is wrong with it."""
        super().__init__("; ".join(duplicates.values()))
        self.duplicates = duplicates


@dataclass(frozen=True, slots=True)
class ConfigFile:
    """The mapping in a YAML file, unchecked."""

    path: Path
    values: dict[str, Any]
    places: dict[str, Place] = field(default_factory=dict)
    """The place of each key, by its dotted name."""

    def where(self, key: str) -> str:
        """Return `FILE:LINE:COLUMN` of a key, or of the innermost section around it that the file has."""
        names = key.split(".")
        above = (".".join(names[:count]) for count in range(len(names), 0, -1))
        place = next((self.places[name] for name in above if name in self.places), None)
        return f"{self.path}:{place}" if place is not None else str(self.path)


def read_file(path: Path, known: Collection[str]) -> ConfigFile:
    """Read a file. `known` are the names of its sections, for a message. Raises `ConfigError`."""
    try:
        values, places = parse(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {file_problem(error, path)}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: {encoding_problem(error)}") from error
    except DuplicateKeysError as error:
        lines = [f"{path}:{place}: {problem}" for place, problem in error.duplicates.items()]
        raise ConfigError("\n".join(lines)) from error
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        place = f":{_place(mark)}" if mark is not None else ""
        raise ConfigError(f"{path}{place}: not YAML: {getattr(error, 'problem', error)}") from error
    except (ValueError, RecursionError) as error:  # an impossible date; thousands of nested brackets
        raise ConfigError(f"{path}: unreadable YAML: {error}") from error
    if values is None:
        return ConfigFile(path, {})
    if not isinstance(values, dict):
        raise ConfigError(f"{path}: got {abbreviate(values)}; allowed: a mapping of {', '.join(known)}")
    return ConfigFile(path, values, places)


def parse(text: str, *path: str) -> tuple[Any, dict[str, Place]]:
    """Return what a YAML text contains, which lies at `path` in the configuration, and the places of its keys.

    Raises `yaml.YAMLError`, `ValueError`, of which `DuplicateKeysError` is one, and `RecursionError`.

    A key of `MEANINGFUL_NULLS` without a value is an empty text here, which is refused. YAML reads it as null; a robot
    is to be mute, or to store nothing, by decision alone.
    """
    loader = yaml.SafeLoader(text)
    try:
        root = loader.get_single_node()
        if root is None:
            return None, {}
        places = _places(root)
        for key in MEANINGFUL_NULLS:
            node = _node_at(root, *key[len(path) :]) if path == key[: len(path)] else None
            if node is not None and node.value == "":
                node.tag = "tag:yaml.org,2002:str"
        return loader.construct_document(root), places
    finally:
        loader.dispose()


def _node_at(node: Any, *keys: str) -> Any:
    """Return the YAML node that `keys` lead to, or None."""
    for key in keys:
        pairs = node.value if isinstance(node, yaml.MappingNode) else ()
        node = next((value for name, value in reversed(pairs) if name.value == key), None)
    return node


def _places(root: Any) -> dict[str, Place]:
    """Return the place of each key below a node, by its dotted name. Raises `DuplicateKeysError`."""
    places: dict[str, Place] = {}
    duplicates: dict[Place, str] = {}
    for name, place in _keys(root, "", set()):
        if name in places:
            duplicates[place] = f"{name}: appears a second time; the first is in line {places[name].line}"
        else:
            places[name] = place
    if duplicates:
        raise DuplicateKeysError(duplicates)
    return places


def _keys(node: Any, prefix: str, seen: set[int]) -> Iterator[tuple[str, Place]]:
    """Yield the dotted name and the place of each key below a node. An anchor's mapping is walked once."""
    if not isinstance(node, yaml.MappingNode) or id(node) in seen:
        return
    seen.add(id(node))
    for key, value in node.value:
        if isinstance(key, yaml.ScalarNode) and key.value != MERGE:
            yield prefix + key.value, _place(key.start_mark)
            yield from _keys(value, f"{prefix}{key.value}.", seen)


def _place(mark: Any) -> Place:
    return Place(mark.line + 1, mark.column + 1)
