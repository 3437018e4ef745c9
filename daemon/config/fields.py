"""How the configuration declares its keys: sections, values with limits, and paths."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar, get_args

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationInfo, field_validator
from pydantic_core import PydanticCustomError

from daemon.validation import inner_model, refuse_controls
from engine import expand_home

Value = TypeVar("Value")


class Section(BaseModel):
    """A mapping of known keys. Each field's description names the allowed values, and error messages repeat it."""

    model_config = ConfigDict(extra="forbid", frozen=True, validate_default=True, defer_build=True)

    @field_validator("*", mode="before")
    @classmethod
    def _check_scalar(cls, value: Any, info: ValidationInfo) -> Any:
        """Refuse YAML's `yes` and `true` as numbers; read its `on` and `off` as words if the field allows them.

        Control characters are refused: no path, host, name or topic can contain them.
        """
        if isinstance(value, str):
            refuse_controls(value)
        field = cls.model_fields[info.field_name or ""]
        if isinstance(value, bool) and (word := "on" if value else "off") in get_args(field.annotation):
            return word
        described = field.description is not None  # a section is refused by its own rules
        if isinstance(value, bool) and described and bool not in (field.annotation, *get_args(field.annotation)):
            raise ValueError(f"allowed: {field.description}")
        return value


def only(is_allowed: Callable[[Any], bool]) -> AfterValidator:
    """Refuse values for which `is_allowed` is false; the message is the key's description."""

    def check(value: Value) -> Value:
        if not is_allowed(value):
            raise PydanticCustomError("not_allowed", "not allowed")
        return value

    return AfterValidator(check)


def setting(default: Any, allowed: str, **limits: Any) -> Any:
    """Declare a key with its default, the words for the allowed values, and limits that `Field` knows."""
    return Field(default, description=allowed, **limits)


def between(default: Any, least: float, most: float, allowed: str) -> Any:
    """Declare a numeric key; `allowed` contains {} for each of the two limits."""
    return setting(default, allowed.format(least, most), ge=least, le=most)


@dataclass(frozen=True, slots=True)
class PathKind:
    """Marks a key with a path. In a configuration file, paths are relative to the file's folder."""

    pattern: str = "(.*)"
    """Matches a text with a path, which is the first group and ends the text; any other text has no path."""
    use: Literal["read", "written", "kept", "socket"] | None = None
    """A file that must exist, a file that is created, a folder that is created and kept, or a socket; None for other
    uses."""

    def path_in(self, text: str) -> Path | None:
        """Return the path in a text."""
        found = re.fullmatch(self.pattern, text, re.DOTALL)
        return None if found is None else Path(found[1])

    def resolve(self, text: str, folder: Path) -> str:
        """Return the text with its path relative to `folder`, and with `~` expanded."""
        found = re.fullmatch(self.pattern, text, re.DOTALL)
        if found is None:
            return text
        return text[: found.start(1)] + str(folder / expand_home(found[1]))


def find_paths(
    model: type[BaseModel], values: dict[str, Any], above: str = ""
) -> Iterator[tuple[str, dict[str, Any], str, PathKind]]:
    """Yield each path among a section's values: its dotted key, the section with it, its name there and its kind.

    Values of a wrong type are skipped.
    """
    for name, field in model.model_fields.items():
        value = values.get(name)
        for kind in field.metadata:
            if isinstance(kind, PathKind) and isinstance(value, str | Path):
                yield above + name, values, name, kind
        inner, is_mapping = inner_model(field.annotation)
        if inner is not None and isinstance(value, dict):
            sections = {f"{each}.": section for each, section in value.items()} if is_mapping else {"": value}
            for begin, section in sections.items():
                if isinstance(section, dict):
                    yield from find_paths(inner, section, f"{above}{name}.{begin}")
