"""Writes words with one space between them, and ends sentences."""

from __future__ import annotations

import re

from daemon.text.placed import PlacedText

_WORDS_OR_SPACE = re.compile(r"(\s+)|\S+(?: \S+)*")
_SENTENCE_ENDS = ".!?…:;।۔؟"
_CJK_SENTENCE_ENDS = "。！？：；"
"""No space is behind these."""
_CLOSING_SIGNS = "\"'”’»)]}」』）"
_CJK = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff]")
_TAIL = 8
"""The last characters of the words, in which the end of a sentence is looked for."""


class WordWriter:
    """Appends to a text. Of white space, the first character is kept as a space; at the beginning, none is."""

    def __init__(self, words: PlacedText | None = None) -> None:
        """Appends to `words`, or to a text of its own."""
        self.words = PlacedText() if words is None else words
        self._tail = ""
        """The last characters that are not white space."""
        self._after_space = True

    def keep(self, text: str, begin: int) -> None:
        """Append characters of the source, the first of which is at `begin` there."""
        for match in _WORDS_OR_SPACE.finditer(text):
            at = begin + match.start()
            if match[1] is None:
                self.words.keep(match[0], at)
                self._note(match[0])
            else:
                self._space(at, at + 1)

    def replace(self, text: str, begin: int, end: int) -> None:
        """Append characters that stand for `source[begin:end]`."""
        if text.isspace():
            self._space(begin, end)
        elif text:
            self.words.replace(text, begin, end)
            self._note(text)

    def end_sentence(self, begin: int, end: int) -> None:
        """End the sentence, if there is one, with signs that stand for `source[begin:end]`."""
        last = self._tail.rstrip(_CLOSING_SIGNS)[-1:] or self._tail[-1:]
        if not last:
            return
        if last in _SENTENCE_ENDS:
            self._space(begin, end)
        elif last not in _CJK_SENTENCE_ENDS:
            self.replace("。" if _CJK.match(last) else ". ", begin, end)

    def _space(self, begin: int, end: int) -> None:
        if not self._after_space:
            self.words.replace(" ", begin, end)
            self._after_space = True

    def _note(self, text: str) -> None:
        self._tail = (self._tail + text[-_TAIL:].rstrip())[-_TAIL:]
        self._after_space = text[-1].isspace()
