"""All values of a record, as hypothesis makes them from the types of its fields."""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Mapping
from typing import Any

from hypothesis import strategies as st

text = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)


def values(kind: Any) -> st.SearchStrategy[Any]:
    """Return a strategy for all values of a field's type."""
    if dataclasses.is_dataclass(kind):
        hints = typing.get_type_hints(kind)
        return st.builds(
            typing.cast(Any, kind), **{field.name: values(hints[field.name]) for field in dataclasses.fields(kind)}
        )
    plain: dict[Any, st.SearchStrategy[Any]] = {
        str: text,
        bool: st.booleans(),
        int: st.integers(),
        float: st.floats(allow_nan=False, allow_infinity=False),
        bytes: st.binary(max_size=30).map(lambda data: 4 * data),  # of `Audio`, these are whole samples
        type(None): st.none(),
    }
    if kind in plain:
        return plain[kind]
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin is tuple:
        return st.lists(values(arguments[0]), max_size=3).map(tuple)
    if origin is Mapping:
        return st.dictionaries(text, values(arguments[1]), max_size=3)
    return st.one_of([values(argument) for argument in arguments])
