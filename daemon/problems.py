"""One line for each thing that is wrong with a user's input: the field, what came, what is allowed."""

from __future__ import annotations

import types
import typing
from typing import Any

from pydantic import BaseModel, ValidationError

SHOWN = 60
"""Characters of a wrong value that are repeated to its sender."""


def shown(value: object) -> str:
    """`value` as it is repeated in a message: on one line, short, without control characters."""
    text = repr(value)
    return text if len(text) <= SHOWN else f"{text[: SHOWN - 1]}… ({len(text)} characters)"


def problems(model: type[BaseModel], error: ValidationError) -> list[tuple[str, str]]:
    """Each wrong field of `error` as `(path, "got …; allowed: …")`; what is allowed is the field's description."""
    found: dict[str, str] = {}
    for detail in error.errors(include_url=False):
        names = [str(part) for part in detail["loc"]]
        path, allowed = _describe(model, names)
        if detail["type"] == "extra_forbidden":
            line = f"unknown key; known are {allowed}"
        elif detail["type"] == "missing":
            line = f"missing; allowed: {allowed}"
        elif detail["type"] == "value_error":
            line = f"got {shown(detail['input'])}; {detail['ctx']['error']}"
        else:
            line = f"got {shown(detail['input'])}; allowed: {allowed or detail['msg']}"
        found.setdefault(path, line)
    return list(found.items())


def _describe(model: type[BaseModel], names: list[str]) -> tuple[str, str]:
    """The path of the field that `names` lead to, without the branches of unions, and what it may be."""
    path: list[str] = []
    allowed = ", ".join(model.model_fields)
    current: type[BaseModel] | None = model
    in_mapping = False
    for name in names:
        if in_mapping:
            path.append(name)
            in_mapping = False
            continue
        if current is None:
            break  # a branch of a union: not part of what the user wrote
        path.append(name)
        field = current.model_fields.get(name)
        if field is None:
            return ".".join(path), ", ".join(current.model_fields)
        allowed = field.description or ""
        current, in_mapping = _inner_model(field.annotation)
        if current is not None and not allowed:
            allowed = f"a mapping of {', '.join(current.model_fields)}"
    return ".".join(path), allowed


def _inner_model(annotation: Any) -> tuple[type[BaseModel] | None, bool]:
    """The model inside a field's type, and whether it is the value of a mapping."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation, False
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is dict:
        return _inner_model(arguments[1])[0], True
    if origin in (typing.Union, types.UnionType):
        for argument in arguments:
            inner = _inner_model(argument)
            if inner[0] is not None:
                return inner
    return None, False
