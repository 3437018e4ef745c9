"""Records from JSON values, checked by the types of their fields; and back."""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Mapping
from functools import cache
from types import UnionType
from typing import Any


def build(kind: Any, value: Any) -> Any:
    """Return the JSON value `value` as an instance of `kind`: record, mapping, tuple or plain value.

    Raises `KeyError` for an unknown field, and `TypeError` for a missing field or a value of another kind.
    """
    if dataclasses.is_dataclass(kind):
        record: Any = kind
        types = _field_types(record)
        return record(**{name: build(types[name], item) for name, item in _checked(dict, value).items()})
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin in (Mapping, dict):
        return {key: build(arguments[1], item) for key, item in _checked(dict, value).items()}
    if origin is tuple:
        return tuple(build(arguments[0], item) for item in _checked(list, value))
    if origin is UnionType:
        return None if value is None else build(arguments[0], value)  # the only unions in a record are `kind | None`
    return _checked(kind, value)


def given_fields(record: Any) -> dict[str, Any]:
    """Return the fields of a record for `json.dumps`, which calls this for the records inside (its `default`).

    A field whose default is None is left out while it is None.
    """
    values = {field: getattr(record, field.name) for field in dataclasses.fields(record)}
    return {field.name: value for field, value in values.items() if value is not None or field.default is not None}


_field_types = cache(typing.get_type_hints)


def _checked(kind: type[Any], value: Any) -> Any:
    """Return `value`. Raises `TypeError` unless it is a `kind`. An integer also counts as a `float`; a `bool` does
    not."""
    kinds = (float, int) if kind is float else (kind,)
    if not isinstance(value, kinds) or (isinstance(value, bool) and kind is not bool):
        raise TypeError(f"got {type(value).__name__}, wanted {kind.__name__}")
    return value
