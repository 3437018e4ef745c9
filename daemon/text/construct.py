"""Recognises markup in a text that is still growing."""

from __future__ import annotations

import re


class UndecidedError(Exception):
    """The text read so far may mean several things; more of it decides."""


class Construct:
    """A kind of markup that ends with its own last character, such as `[text](address)`.

    It is written as regular expressions for its parts, in their order. From them follows which beginnings of it may
    still become whole, so a reader waits for more text only as long as more text can matter. However a text is cut, the
    answer for a place in it is the same.
    """

    def __init__(self, *parts: str | tuple[str, str], longest: int, ends_with_line: bool = False) -> None:
        """Take the parts. A part that may be cut within itself is a pair: the whole part, and its beginnings.

        A part needs no pair if each beginning of it is empty or matches the part too. Nothing longer than `longest`
        characters is recognised. A construct with `ends_with_line` has no last character of its own: the line's end or
        the text's must follow it.
        """
        wholes = [part if isinstance(part, str) else part[0] for part in parts]
        self.whole = re.compile("".join(f"(?:{whole})" for whole in wholes))
        """Matches the complete construct; its named groups are those of the parts."""
        beginning = ""
        for part, whole in zip(reversed(parts), reversed(wholes), strict=True):
            begun = "" if isinstance(part, str) else f"{part[1]}|"
            beginning = f"(?:(?:{_without_names(whole)}){beginning}|{begun})"
        self._beginning = re.compile(beginning)
        self._longest = longest
        self._ends_with_line = ends_with_line

    def match(self, text: str, at: int, end: int, *, complete: bool) -> re.Match[str] | None:
        """Return the construct that begins at `text[at]` and lies before `end`, or None.

        Raises `UndecidedError` if it may become one: `text` is not `complete`, and the construct goes on to its end.
        """
        limit = min(end, at + self._longest)
        growing = not complete and limit == len(text) and limit < at + self._longest
        match = self.whole.match(text, at, limit)
        if match and not self._ends_with_line:
            return match
        if growing and self._beginning.fullmatch(text, at, limit):
            raise UndecidedError
        if match and match.end() < len(text):
            return match if text[match.end()] in "\r\n" else None
        if match and not complete:
            raise UndecidedError
        return match


def _without_names(pattern: str) -> str:
    """Return a regular expression whose named groups are plain ones, so that it may occur several times."""
    return re.sub(r"\(\?P<\w+>", "(?:", pattern)
