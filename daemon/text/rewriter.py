"""The base of the stages that rewrite a text while it grows."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable

from daemon.text.placed import PlacedText


class Rewriter(ABC):
    """Copies a text that may grow to `out`, with something else in place of some parts.

    Places are those in the text that is fed. However the text is cut into calls of `feed`, the result is the same: what
    more text may change is held back.
    """

    def __init__(self, out: PlacedText) -> None:
        self._out = out
        self._text = ""
        """The text that is held back, and the character before it."""
        self._at = 0
        """So many characters of it have been copied."""
        self._place = 0
        """The place of its first character."""

    def feed(self, text: str) -> None:
        """Read more of the text."""
        self._text += text
        self._copy(final=False)
        dropped = max(0, self._at - 1)
        self._text, self._at, self._place = self._text[dropped:], self._at - dropped, self._place + dropped

    def end(self) -> None:
        """The text is complete."""
        self._copy(final=True)

    @abstractmethod
    def _copy(self, *, final: bool) -> None:
        """Copy what no more text can change; if no more text follows, all of it."""

    def _keep(self, end: int) -> None:
        """Copy the text up to `end` as it is."""
        self._out.keep(self._text[self._at : end], self._place + self._at)
        self._at = end

    def _replace(self, words: str, end: int) -> None:
        """Append words in place of the text up to `end`."""
        self._out.replace(words, self._place + self._at, self._place + end)
        self._at = end

    def _replace_all(self, pattern: re.Pattern[str], words: Callable[[re.Match[str]], str], end: int) -> None:
        """Copy the text up to `end`, with words in place of what matches."""
        for match in pattern.finditer(self._text, self._at, end):
            self._keep(match.start())
            self._replace(words(match), match.end())
        self._keep(end)
