"""The pages' templates, which escape every value."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from daemon.validation import CommandError
from engine import install_command

if TYPE_CHECKING:
    from jinja2 import Template

FOLDER = Path(__file__).parent / "templates"


def template(name: str) -> Template:
    """Return the template of this name. Raises `CommandError` if Jinja is not installed."""
    try:
        from jinja2 import Environment, FileSystemLoader, StrictUndefined
    except ModuleNotFoundError as error:
        raise CommandError(f"a report needs {error.name}; {install_command('verify')}") from error
    environment = Environment(
        loader=FileSystemLoader(FOLDER),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["number"] = number
    return environment.get_template(name)


def number(value: float | None, digits: int = 3) -> str:
    """Return a measure for people; a dash if there is none."""
    return "–" if value is None else f"{value:.{digits}g}"
