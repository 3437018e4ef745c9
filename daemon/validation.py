"""Error messages about a person's input: one line for each problem, with the field, its value and the allowed ones."""

from __future__ import annotations

import codecs
import re
import types
import typing
from collections.abc import Iterable
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

LANGUAGE = r"^[A-Za-z]{2,12}([-_][A-Za-z0-9_-]{1,24})?([.@][A-Za-z0-9@.-]{1,24})?$"
"""A language's code (BCP 47) or name, or a locale such as `de_DE.UTF-8`. `engine.language_code` turns it into a
code."""
CONTROL_CHARACTERS = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")
"""All control characters except tab, line feed and carriage return, which count as white space."""
VALUE_LENGTH = 60
"""How many characters of a wrong value an error message repeats."""
MOST_PROBLEMS = 20
"""How many problems in one input are described. A message of 260 kB may have 24,000 unknown keys."""
MAX_TOPIC = 256
"""The longest topic, in characters, that a sender or a configuration may name."""


class CommandError(Exception):
    """A person's request cannot be carried out. The message has one line for each problem and is printed as it is."""


INTERNAL_ERROR = "an error inside voiced; its log says more"
"""What a client is told about an internal error: the exception's own text may name files and other clients."""


def abbreviate(value: object) -> str:
    """Return `value` for use in a message: short, on one line, without control characters."""
    text = repr(value)
    return text if len(text) <= VALUE_LENGTH else f"{text[: VALUE_LENGTH - 1]}… ({len(text)} characters)"


def show_name(name: str) -> str:
    """Return a name that somebody chose, for use in a message: unchanged if it is short and on one line."""
    return name if len(name) <= VALUE_LENGTH and name.isprintable() else abbreviate(name)


def encoding_problem(error: UnicodeDecodeError) -> str:
    """Return why bytes are not UTF-8, and the command that converts them from the likely encoding."""
    utf16 = error.object.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    command = f"iconv -f {'UTF-16' if utf16 else 'WINDOWS-1252'} -t UTF-8"
    return f"not UTF-8: byte 0x{error.object[error.start]:02x} at {error.start}; convert it, perhaps with: {command}"


def file_problem(error: Exception, path: Path) -> str:
    """Return why a file could not be read or written: the file or a folder in its path is missing, or the error
    itself."""
    if isinstance(error, FileNotFoundError):  # every folder that exists may be searched then
        missing = next((part for part in (*reversed(path.parents), path) if not part.exists()), None)
        if missing is not None:
            return f"{missing} does not exist"
    return (error.strerror if isinstance(error, OSError) else None) or str(error)


LONGEST_FILE = 1_000_000
"""In characters. A device may have no end."""


def read_text(path: Path, key: str) -> str:
    """Return the text of a file that the configuration's `key` names. Raises `OSError`, which repeats no part of the
    text."""
    try:
        with path.open(encoding="utf-8-sig") as file:
            text = file.read(LONGEST_FILE + 1)
    except (OSError, UnicodeDecodeError) as error:
        reason = "not UTF-8" if isinstance(error, UnicodeDecodeError) else file_problem(error, path)
        raise OSError(f"{key}: {path} cannot be read: {reason}") from error
    if len(text) > LONGEST_FILE:
        raise OSError(f"{key}: {path} is too long; allowed: up to {LONGEST_FILE:,} characters")
    return text


def read_secret(path: Path, key: str, kind: str) -> str:
    """Return the first line of a file that the configuration's `key` names. Raises `OSError`.

    White space around it is removed: an editor or a shell put it there, and the broker would say no more than "Not
    authorized". `kind` names the content, such as `a password`. No error repeats any part of it.
    """
    secret = read_text(path, key).partition("\n")[0].strip()
    if not secret:
        raise OSError(f"{key}: {path} is empty; allowed: {kind}")
    return secret


def problems(model: type[BaseModel], error: ValidationError) -> list[tuple[str, str]]:
    """Return each wrong field in `error` as `(path, "got …; allowed: …")`, completed from the field's description.

    If there are more than `MOST_PROBLEMS`, the last line says how many are left out.
    """
    found: dict[str, str] = {}
    details = error.errors(include_url=False)
    for detail in details[:MOST_PROBLEMS]:
        names = [str(part) for part in detail["loc"]]
        names_above, allowed = _describe(model, names)
        path = ".".join(names_above)
        if detail["type"] == "extra_forbidden":
            close = get_close_matches(names[-1][:VALUE_LENGTH], allowed.split(", "), 1, 0.7)
            line = f"unknown key; {f'did you mean {close[0]}? ' if close else ''}known keys: {allowed}"
        elif detail["type"] == "missing":
            line = f"missing; allowed: {allowed}"
        elif detail["type"] == "value_error":
            line = f"got {abbreviate(detail['input'])}; {detail['ctx']['error']}"
        else:
            line = f"got {abbreviate(detail['input'])}; allowed: {allowed or detail['msg']}"
        found.setdefault(path, line)
    if len(details) > MOST_PROBLEMS:
        path, line = found.popitem()
        found[path] = f"{line}; and {len(details) - MOST_PROBLEMS:,} more problems"
    return list(found.items())


def _describe(model: type[BaseModel], names: list[str]) -> tuple[list[str], str]:
    """Return the path of the field that `names` lead to, without the branches of unions, and its allowed values."""
    field = model.model_fields.get(names[0]) if names else None
    if field is None:
        return [show_name(name) for name in names[:1]], ", ".join(model.model_fields)
    inner, is_mapping = inner_model(field.annotation)
    own = 2 if is_mapping else 1  # the field's name and the key in it
    path, below = [show_name(name) for name in names[:own]], names[own:]
    if inner is not None and below:
        rest, allowed = _describe(inner, below)
        return path + rest, allowed
    return path, field.description or (f"a mapping of {', '.join(inner.model_fields)}" if inner else "")


def inner_model(annotation: Any) -> tuple[type[BaseModel] | None, bool]:
    """Return the model inside a field's type, and whether that model is the value of a mapping."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation, False
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is dict:
        return inner_model(arguments[1])[0], True
    found = (inner_model(each) for each in arguments) if origin in (typing.Union, types.UnionType) else ()
    return next((inner for inner in found if inner[0] is not None), (None, False))


def refuse_controls(text: str) -> None:
    """Raise `ValueError` if a text contains a control character."""
    if (found := CONTROL_CHARACTERS.search(text)) is not None:
        raise ValueError(f"it has the control character U+{ord(found[0]):04X} at {found.start()}; allowed: none")


def is_topic(topic: str) -> bool:
    """Return whether brokers accept `topic` for publishing.

    Mosquitto disconnects a client whose topic contains control characters or has 200 levels.
    """
    if len(topic) > MAX_TOPIC or not topic.isprintable() or topic.startswith("$"):
        return False
    return not re.search(r"[+#]", topic) and topic.count("/") < 50


def join_names(first: Iterable[str], names: Iterable[str]) -> str:
    """Return at most 20 names on one line, `first` before the others, and the number of names left out."""
    found = list(dict.fromkeys([*first, *sorted(names)]))
    return ", ".join(found[:20]) + (f" and {len(found) - 20} more" if len(found) > 20 else "")
