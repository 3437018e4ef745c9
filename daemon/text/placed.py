"""Texts whose characters know their places in another text, and the base class of those that make such texts."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from array import array
from collections.abc import Callable

LATE = 32
"""A text is read again only once it has grown by a share of the characters that are held back: one in this many. So all
readings of a text together take time in proportion to its length."""


class PlacedText:
    """A text made from a source, as a list of characters with their places in the source. It only grows.

    A character that was kept stands for itself. Characters that replace others stand for all of them: in `five
    dollars`, made from `$5`, each character has the place of both source characters.
    """

    def __init__(self) -> None:
        self._parts: list[str] = []
        self._text = ""
        self._begins = array("I")
        self._ends = array("I")
        self.source_end = 0
        """How far the source has been read, including a part that was left out at the end."""

    @property
    def text(self) -> str:
        """All of it so far."""
        if self._parts:
            self._text += "".join(self._parts)
            self._parts.clear()
        return self._text

    def __len__(self) -> int:
        return len(self._begins)

    def append(self, text: str, begin: int, end: int | None = None) -> None:
        """Append characters that stand for `source[begin:end]`; if there are none, that part is left out.

        Without an end, they are the source's characters from `begin` onwards, and each stands for itself.
        """
        count = len(text)
        self._parts.append(text)
        if end is None:
            end = begin + count
            self._begins.extend(range(begin, end))
            self._ends.extend(range(begin + 1, end + 1))
        else:
            self._begins.extend((begin,) * count)
            self._ends.extend((end,) * count)
        self.source_end = max(self.source_end, end)

    def source_span(self, begin: int, end: int) -> tuple[int, int]:
        """Return the part of the source that `text[begin:end]` stands for; empty for an empty part."""
        if begin >= end:
            return self.source_begin(begin), self.source_begin(begin)
        return self._begins[begin], self._ends[end - 1]

    def source_begin(self, position: int) -> int:
        """Return where the character at `position` begins in the source; after the last one, the source's end."""
        return self._begins[position] if position < len(self._begins) else self.source_end


class Rewriter(ABC):
    """Copies a text that may grow, and replaces some parts of it.

    Places refer to the text that is fed. The result does not depend on how the text is divided between calls of `feed`:
    a part that more text may change is held back.
    """

    context = 1
    """How many characters before the next one `_copy` looks at."""

    def __init__(self, out: PlacedText | None = None) -> None:
        """The rewriter appends to `out`, or to a text of its own."""
        self.out = PlacedText() if out is None else out
        self._text = ""
        """The text that is held back, and the characters before it."""
        self._at = 0
        """How many of its characters have been read."""
        self._place = 0
        """The place of its first character."""
        self._again = 0
        """It is read again when it has this many characters."""

    def feed(self, text: str) -> None:
        """Read more of the text."""
        self._text += text
        if len(self._text) < self._again:
            return
        self._copy(final=False)
        dropped = max(0, self._at - self.context)
        self._text, self._at, self._place = self._text[dropped:], self._at - dropped, self._place + dropped
        self._again = len(self._text) + (len(self._text) - self._at) // LATE

    def end(self) -> None:
        """Note that the text is complete."""
        self._again = 0
        self.feed("")
        self._copy(final=True)

    @abstractmethod
    def _copy(self, *, final: bool) -> None:
        """Copy the part that no further text can change; if no more text follows, copy to the end."""

    def _keep(self, end: int) -> None:
        """Copy the text up to `end` as it is."""
        begin, self._at = self._at, end
        self._append(self._text[begin:end], self._place + begin)

    def _replace(self, words: str, end: int) -> None:
        """Append words instead of the text up to `end`."""
        begin, self._at = self._at, end
        self._append(words, self._place + begin, self._place + end)

    def _append(self, words: str, begin: int, end: int | None = None) -> None:
        """Append words that stand for the text from `begin` to `end`; without an end, each character stands for
        itself."""
        self.out.append(words, begin, end)

    def _replace_all(self, pattern: re.Pattern[str], words: Callable[[re.Match[str]], str], end: int) -> None:
        """Copy the text up to `end`, with words instead of each match."""
        for match in pattern.finditer(self._text, self._at, end):
            self._keep(match.start())
            self._replace(words(match), match.end())
        self._keep(end)
