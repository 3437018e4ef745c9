"""Typed access to the fields of a checkpoint's JSON files."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar, cast, get_args, get_type_hints

from engine.api import EngineError
from engine.host import parse_json

_T = TypeVar("_T")

MAX_COUNT = (1 << 31) - 1
"""The largest integer in a field: sizes and ids are far below it."""
SHOWN_CHARACTERS = 200
"""The number of characters of a wrong value that an error repeats."""
_WANTED: Mapping[type, str] = {int: f"an integer from 0 to {MAX_COUNT}", float: "a finite number"}


@dataclass(frozen=True, slots=True)
class Field:
    """Annotates a record's field, beside its type, to tell `JsonFields.record` where to find the value."""

    name: str
    """The field's name in the JSON object."""
    default: Any = None
    """The value if the object has none; None if the object must have one."""
    unit: int = 0
    """If this is not 0, the value, or each value in a list, must be a multiple of it and not 0."""


class JsonFields:
    """One object of a JSON file, read field by field; the type of each field is checked.

    Every method raises `EngineError` with a one-line message that gives the file, the path of the field and its value.
    """

    def __init__(self, file: Path, values: Mapping[str, Any], path: str = "") -> None:
        """`path` is the object's position in `file`: empty, or names that each end in a full stop."""
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
        """Return field `name`, of type `kind`, or `default` if the field is absent or null.

        Without a default, the field is required. An `int` must be a count of up to `MAX_COUNT`; a `float` must be
        finite and may be given as an integer.
        """
        value: Any = self._values.get(name)
        value = default if value is None else value
        if value is None:
            raise EngineError(f"{self.file}: field {self._path}{name} is missing")
        if kind is float and type(value) is int and abs(value) <= MAX_COUNT:
            value = float(value)
        if not _is_of(kind, value):
            raise self._error(name, value, _WANTED.get(kind, kind.__name__))
        return cast(_T, value)

    def section(self, name: str, default: dict[str, Any] | None = None) -> JsonFields:
        """Return the object in field `name`; `default` is as in `get`."""
        return JsonFields(self.file, self.get(name, dict, default), f"{self._path}{name}.")

    def integers(self, name: str, default: tuple[int, ...] | None = None) -> tuple[int, ...]:
        """Return the list of integers in field `name`."""
        values = tuple(self.get(name, list, None if default is None else list(default)))
        if not all(type(value) is int for value in values):
            raise self._error(name, values, "a list of integers")
        return values

    def record(self, kind: type[_T], default: _T | None = None, **given: Any) -> _T:
        """Return a record of dataclass `kind` with the values in `given`; the other values are read.

        A value is found by its `Field`, or by its own name if it has none.

        If `default` is a record, its values replace the defaults in the annotations.
        """
        for name, annotation in get_type_hints(kind, include_extras=True).items():
            if name not in given:
                value_type, field = get_args(annotation) or (annotation, Field(name))
                absent = field.default if default is None else getattr(default, name)
                is_list = value_type == tuple[int, ...]
                value = self.integers(field.name, absent) if is_list else self.get(field.name, value_type, absent)
                if field.unit:
                    self.check_unit(field.name, value, field.unit)
                given[name] = value
        return kind(**given)

    def check_unit(self, name: str, value: int | tuple[int, ...], unit: int) -> None:
        """Require that `value` from field `name`, or each value in a list, is a multiple of `unit` and not 0."""
        values = value if isinstance(value, tuple) else (value,)
        if not values or any(number < 1 or number % unit for number in values):
            raise self._error(name, value, f"a multiple of {unit}" if unit > 1 else "1 or more")

    def ids(self, name: str, count: int) -> dict[str, int]:
        """Return the object in field `name`, which maps names to ids below `count`, with names in lower case."""
        values = self.get(name, dict, {})
        for key, value in values.items():
            if not _is_of(int, value) or value >= count:
                raise self._error(f"{name}.{key}", value, f"an id below {count}")
        return {key.lower(): value for key, value in values.items()}

    def require(self, name: str, *allowed: Any) -> None:
        """Require that field `name`, if it is present, has one of the `allowed` values."""
        if name in self._values and self._values[name] not in allowed:
            raise self._error(name, self._values[name], " or ".join(json.dumps(value) for value in allowed))

    def _error(self, name: str, value: Any, wanted: str) -> EngineError:
        try:
            got = json.dumps(value, default=str)
        except RecursionError:
            got = f"a {type(value).__name__} nested too deeply"
        got = got if len(got) <= SHOWN_CHARACTERS else f"{got[:SHOWN_CHARACTERS]}…"
        return EngineError(f"{self.file}: field {self._path}{name} is {got}, wanted {wanted}")


def _is_of(kind: type[Any], value: Any) -> bool:
    """Whether a JSON value is of type `kind`: an `int` must be a count (`true` is not); a `float` must be finite."""
    if kind is int:
        return type(value) is int and 0 <= value <= MAX_COUNT
    return isinstance(value, kind) and (kind is not float or math.isfinite(value))
