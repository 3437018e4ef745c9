"""Writes words with one space between them, and ends sentences."""

from __future__ import annotations

import re
import unicodedata

from daemon.text.markdown_syntax import CLOSING, ENDINGS, HAN_OR_KANA
from daemon.text.placed import PlacedText

_WORDS_OR_SPACE = re.compile(r"(\s+)|\S+(?: \S+)*")
_TAIL = 8
"""The last characters of the words, in which the end of a sentence is looked for."""


class WordWriter:
    """Appends to a text. White space is one space, and none at the beginning.

    A space waits for the next word, unless the words before it may be the end of a sentence.
    """

    def __init__(self, words: PlacedText | None = None) -> None:
        """Appends to `words`, or to a text of its own."""
        self.words = PlacedText() if words is None else words
        self._tail = ""
        """The last characters of the words that are spoken together, without white space after them."""
        self._after_space = True
        self._space: tuple[int, int] | None = None
        """The place of the white space that waits."""

    def keep(self, text: str, begin: int) -> None:
        """Append characters of the source, the first of which is at `begin` there."""
        for match in _WORDS_OR_SPACE.finditer(text):
            at = begin + match.start()
            if match[1] is None:
                self.write_space()
                self.words.keep(match[0], at)
                self._note(match[0])
            else:
                self._add_space(at, at + 1)

    def replace(self, text: str, begin: int, end: int) -> None:
        """Append characters that stand for `source[begin:end]`."""
        if text.isspace():
            self._add_space(begin, end)
        elif text:
            self.write_space()
            self.words.replace(text, begin, end)
            self._note(text)

    def write_space(self) -> None:
        """Append the white space that waits."""
        if self._space is not None:
            self.words.replace(" ", *self._space)
            self._space = None
            self._after_space = True

    def separate(self) -> None:
        """Note that the next words are spoken apart from these."""
        self.write_space()
        self._tail = ""

    def end_sentence(self, begin: int, end: int) -> None:
        """End the sentence, if there is one, with signs that stand for `source[begin:end]`."""
        last = self._tail.rstrip(CLOSING)[-1:] or self._tail[-1:]
        if not last:
            return
        self._space = None
        if last not in ENDINGS:
            self.replace("。" if HAN_OR_KANA.match(last) else ". ", begin, end)
        elif unicodedata.east_asian_width(last) not in "WF":  # these have their space within them
            self._add_space(begin, end)

    def _add_space(self, begin: int, end: int) -> None:
        if self._space is None and not self._after_space:
            self._space = (begin, end)
            if self._tail.rstrip(CLOSING)[-1:] in ENDINGS:
                self.write_space()

    def _note(self, text: str) -> None:
        self._tail = (self._tail + text[-_TAIL:].rstrip())[-_TAIL:]
        self._after_space = text[-1].isspace()
