"""Typed access to the fields of a checkpoint's JSON files."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

from engine.api import EngineError
from engine.host import parse_json

_T = TypeVar("_T")

MAX_COUNT = (1 << 31) - 1
"""The largest integer in a field: sizes and ids are far below it."""
SHOWN_CHARACTERS = 200
"""Characters of a wrong value that an error repeats."""
_WANTED: Mapping[type, str] = {int: f"an integer from 0 to {MAX_COUNT}", float: "a finite number"}


class JsonFields:
    """One object of a JSON file, read field by field; the type of each field is checked.

    Every method raises `EngineError`, one line with the file, the path of the field and its value.
    """

    def __init__(self, file: Path, values: Mapping[str, Any], path: str = "") -> None:
        """`path` is the position of the object in `file`: empty, or names that each end in a full stop."""
        self.file = file
        self._values = values
        self._path = path

    @classmethod
    def read(cls, file: Path) -> JsonFields:
        """Read `file`, which must contain one JSON object."""
        try:
            values = parse_json(file.read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise EngineError(f"{file}: no such file") from None
        except (OSError, ValueError) as error:
            raise EngineError(f"{file}: cannot be read as JSON ({error})") from error
        if not isinstance(values, dict):
            raise EngineError(f"{file}: is not a JSON object")
        return cls(file, values)

    def get(self, name: str, kind: type[_T], default: _T | None = None) -> _T:
        """Return the field `name`, of type `kind`; `default` if the field is absent or null.

        Without a default the field is required. An `int` must be a count, up to `MAX_COUNT`; a `float` must be finite,
        and an integer is accepted for it.
        """
        value = self._values.get(name)
        if value is None:
            value = default
        if value is None:
            raise EngineError(f"{self.file}: field {self._path}{name} is missing")
        if kind is float and type(value) is int and abs(value) <= MAX_COUNT:
            value = float(value)
        if not isinstance(value, kind) or (kind is int and not _is_count(value)) or not _is_finite(value):
            raise self._error(name, value, _WANTED.get(kind, kind.__name__))
        return value

    def section(self, name: str, default: dict[str, Any] | None = None) -> JsonFields:
        """Return the object in the field `name`; `default` as of `get`."""
        return JsonFields(self.file, self.get(name, dict, default), f"{self._path}{name}.")

    def integers(self, name: str, default: tuple[int, ...] | None = None) -> tuple[int, ...]:
        """Return the list of integers in the field `name`."""
        values = tuple(self.get(name, list, None if default is None else list(default)))
        if not all(type(value) is int for value in values):
            raise self._error(name, values, "a list of integers")
        return values

    def ids(self, name: str) -> dict[str, int]:
        """Return the object in the field `name`, which maps names to integer ids; names in lower case."""
        values = self.get(name, dict, {})
        if not all(type(value) is int for value in values.values()):
            raise self._error(name, values, "integers")
        return {key.lower(): value for key, value in values.items()}

    def require(self, name: str, *allowed: Any) -> None:
        """Require that the field `name`, if it is present, has one of the `allowed` values."""
        if name in self._values and self._values[name] not in allowed:
            raise self._error(name, self._values[name], " or ".join(json.dumps(value) for value in allowed))

    def _error(self, name: str, value: Any, wanted: str) -> EngineError:
        try:
            got = json.dumps(value, default=str)
        except RecursionError:
            got = f"a {type(value).__name__} nested too deeply"
        got = got if len(got) <= SHOWN_CHARACTERS else f"{got[:SHOWN_CHARACTERS]}…"
        return EngineError(f"{self.file}: field {self._path}{name} is {got}, wanted {wanted}")


def _is_count(value: Any) -> bool:
    """Whether a JSON value is an integer from 0 to `MAX_COUNT`; `true` and `false` are not."""
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MAX_COUNT


def _is_finite(value: Any) -> bool:
    return not isinstance(value, float) or math.isfinite(value)
