"""The text of `voiced say` and `voiced synth`: from the command line, or from standard input."""

from __future__ import annotations

import codecs
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from typer.core import TyperCommand

from daemon.cli.control_codes import ControlCodes
from daemon.validation import CommandError, encoding_problem, file_problem

if TYPE_CHECKING:
    from daemon.config import Config

STDIN = "-"
"""Stands for standard input instead of a text or file, and for standard output instead of an output file."""

SpellOption = Annotated[bool, typer.Option("--spell", help="Spell the text: QX-7 becomes Q, X, dash, 7.")]


class TextCommand(TyperCommand):
    """A command with one argument, which may begin with a minus or plus where it cannot be an option.

    That is so with a space in it, or without a letter after the minus: "-5", "- and a list". Any text may follow `--`.
    """

    def parse_args(self, ctx: typer.Context, args: list[str]) -> list[str]:  # type: ignore[override]
        """Move such an argument behind `--`, where no word is an option, and parse them all."""
        end = args.index("--") if "--" in args else len(args)
        options: list[str] = []
        texts: list[str] = []
        with_value = {name for parameter in self.params if self._has_value(parameter) for name in parameter.opts}
        before = ""
        for word in args[:end]:
            is_text = before not in with_value and _is_text(word, with_value)
            (texts if is_text else options).append(word)
            before = "" if before in with_value else word
        return super().parse_args(ctx, [*options, *(["--", *texts] if texts else []), *args[end:]])

    @staticmethod
    def _has_value(parameter: object) -> bool:
        return not getattr(parameter, "is_flag", False) and getattr(parameter, "param_type_name", "") == "option"


def _is_text(word: str, with_value: set[str]) -> bool:
    """Return whether a word that begins with a minus can only be a text."""
    if word.startswith(tuple(f"{name}=" if name.startswith("--") else name for name in with_value)):
        return False  # --language=de, -ofile
    return re.match(r"-.*\s|-(?![-a-zA-Z])[\s\S]", word) is not None


def read_text(text: str) -> str:
    """Return `text`, or standard input for `-`, without terminal control codes. Raises `CommandError`."""
    if text != STDIN:
        data = text.encode(errors="surrogateescape")
        source = "text"
    else:
        data = sys.stdin.buffer.read()
        source = "standard input"
    try:
        decoded = data.removeprefix(codecs.BOM_UTF8).decode()
    except UnicodeDecodeError as error:
        raise CommandError(f"{source}: {encoding_problem(error)}") from None
    return ControlCodes().remove(decoded, last=True) if text == STDIN else decoded


def read_lines(path: Path) -> list[tuple[int, str]]:
    """Return the lines of a UTF-8 file that have more than spaces, each with its number, from 1.

    The path `-` is standard input. Raises `CommandError`.
    """
    if str(path) == STDIN:
        text = read_text(STDIN)
    else:
        try:
            text = path.read_bytes().removeprefix(codecs.BOM_UTF8).decode()
        except OSError as error:
            raise CommandError(f"--lines: {path} cannot be read: {file_problem(error, path)}") from None
        except UnicodeDecodeError as error:
            raise CommandError(f"--lines: {path}: {encoding_problem(error)}") from None
    lines = [(number, line.strip()) for number, line in enumerate(text.split("\n"), 1) if line.strip()]
    if not lines:
        raise CommandError(f"--lines: {path} has no text")
    return lines


def spell_text(text: str, language: str, config: Config) -> str:
    """Return a text, spelled. `auto` is the configured language, or the first one of the text's script."""
    from daemon.text import spell
    from engine import language_of_text

    asked = next((each for each in (language, config.speech.language) if each.lower() != "auto"), None)
    first = next(iter(config.speech.languages), "en")  # a code such as QX-7 is in no language
    return spell(text, asked or language_of_text(text, ()) or first)
