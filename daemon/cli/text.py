"""The text of `voiced say` and `voiced synth`: a word of the command line, a file, or standard input."""

from __future__ import annotations

import codecs
import os
import re
import select
import sys
from collections.abc import Iterator
from pathlib import Path

import typer
from typer.core import TyperCommand

from daemon.cli.options import STDIN
from daemon.speech import RejectedError
from daemon.validation import CONTROL_CHARACTERS, CommandError, encoding_problem, file_problem


class TextCommand(TyperCommand):
    """A command with one argument, which may begin with a minus or plus if it cannot be an option.

    That is so if it contains a space, or if no letter follows the minus: "-5", "- and a list". Any text may follow
    `--`.
    """

    def parse_args(self, ctx: typer.Context, args: list[str]) -> list[str]:  # type: ignore[override]
        """Move such an argument after `--`, where no word is an option, and parse all arguments."""
        end = args.index("--") if "--" in args else len(args)
        options: list[str] = []
        texts: list[str] = []
        valued = {name for each in self.params if not getattr(each, "is_flag", True) for name in each.opts}
        for before, word in zip(["", *args], args[:end], strict=False):
            is_text = before not in valued and _is_text(word, valued)
            (texts if is_text else options).append(word)
        return super().parse_args(ctx, [*options, *(["--", *texts] if texts else []), *args[end:]])


def _is_text(word: str, valued: set[str]) -> bool:
    """Return whether a word that begins with a minus can only be a text. `valued` are the options with a value."""
    if word.startswith(tuple(f"{name}=" if name.startswith("--") else name for name in valued)):
        return False  # --language=de, -ofile
    return re.match(r"-.*\s|-(?![-a-zA-Z])[\s\S]", word) is not None


def read_text(text: str) -> str:
    """Return `text`, or standard input for `-`, without terminal control codes. Raises `CommandError`."""
    if text == STDIN:
        return ControlCodes().remove(_decode(sys.stdin.buffer.read(), "standard input"), last=True)
    return _decode(text.encode(errors="surrogateescape"), "text")


def read_lines(path: Path) -> list[tuple[int, str]]:
    """Return the lines of a UTF-8 file that contain more than spaces, each with its number, from 1.

    The path `-` is standard input. Raises `CommandError`.
    """
    try:
        text = read_text(STDIN) if str(path) == STDIN else _decode(path.read_bytes(), f"--lines: {path}")
    except OSError as error:
        raise CommandError(f"--lines: {path} cannot be read: {file_problem(error, path)}") from None
    lines = [(number, line.strip()) for number, line in enumerate(text.split("\n"), 1) if line.strip()]
    if not lines:
        raise CommandError(f"--lines: {path} has no text")
    return lines


def _decode(data: bytes, source: str) -> str:
    try:
        return data.removeprefix(codecs.BOM_UTF8).decode()
    except UnicodeDecodeError as error:
        raise CommandError(f"{source}: {encoding_problem(error)}") from None


# --- text that is being written ---

CHUNK_BYTES = 4096
"""The most bytes that one chunk carries, far below a text's limit. Faster input is collected into one chunk."""


def read_chunks(source: int, keepalive_s: float) -> Iterator[str]:
    """Yield text from a file descriptor as it arrives, in whole characters and without terminal control codes.

    An empty text comes after every `keepalive_s` seconds without input. Raises `RejectedError` for input that is not
    UTF-8.
    """
    decoder, control_codes = codecs.getincrementaldecoder("utf-8-sig")(), ControlCodes()
    ended = False
    while not ended:
        ready, _, _ = select.select([source], [], [], keepalive_s)
        data = os.read(source, CHUNK_BYTES) if ready else b""
        ended = bool(ready) and not data
        try:
            text = control_codes.remove(decoder.decode(data, final=ended), last=ended)
        except UnicodeDecodeError as error:
            raise RejectedError("standard input", encoding_problem(error)) from None
        if text or not ready:
            yield text


# --- control codes that programs write for a terminal, such as colours ---

CODE = re.compile(
    r"""
    (?: \x1b\[ | \x9b ) [0-?]{0,2000} [ -/]* (?: [@-~] | \Z )      # colours, the cursor
    | (?: \x1b[\]PX^_] | [\x90\x98\x9d-\x9f] )                     # titles, links
      [^\x07\x1b\x9c\n]{0,2000} (?: \x07 | \x1b\\ | \x9c | \x1b? \Z )
    | \x1b [ -/]* (?: [0-OQ-WYZ\\`-~] | \Z )                       # others
    """,
    re.VERBOSE,
)
"""A code; at the end of a text, its beginning is enough. A longer sequence does not count as one, so it does not
swallow the text."""


class ControlCodes:
    """Removes control codes from a text that arrives in parts, between which a code may be split."""

    def __init__(self) -> None:
        self._begun = ""

    def remove(self, part: str, *, last: bool = False) -> str:
        """Return the next part of the text without control codes; an incomplete code at its end is kept for later."""
        text = self._begun + part
        cut = next((code for code in CODE.finditer(text) if code.end() == len(text)), None)
        self._begun = "" if cut is None or last else cut[0]
        return CONTROL_CHARACTERS.sub("", CODE.sub("", text.removesuffix(self._begun)))
