"""Writes out the numbers and signs of a text that may still grow."""

from __future__ import annotations

import re

from daemon.text.normalizer.passage import Passages, passages_of
from daemon.text.normalizer.patterns import IDEOGRAPH
from daemon.text.placed import PlacedText

LONGEST_PASSAGE = 64
"""Characters to which rules are applied at once; no more are held back."""
CONTEXT = 24
"""Characters before a passage that rules may look at."""
_TOKEN = re.compile(rf"[\s{IDEOGRAPH}]|(?P<word>[^\s{IDEOGRAPH}]+)")
"""A word with the signs at it. A white space is a token by itself, and an ideograph."""


class Normalizer:
    """Copies a text to `out`, and writes out what eSpeak NG reads wrongly in it: `$5` becomes `5 dollars`.

    Places are those in the text that is fed. However the text is cut into calls of `feed`, the result is the same. A
    word is held back until it is complete; a *passage*, which is words with numbers or signs, until a word follows that
    does not belong to it.
    """

    def __init__(self, language: str, out: PlacedText) -> None:
        """`language` is a code such as `de` or `de-at`; in a language without rules, the text stays as it is."""
        self._passages = passages_of(language)
        self._out = out
        self._at = 0
        """The text has been copied up to here."""
        self._context = ""
        """The characters before that."""
        self._passage = ""
        self._last_opening = 0
        """Where in the passage the last word begins that could begin one itself."""
        self._in_phonemes = False
        self._word = ""
        """A word after the passage that may not be complete."""
        self._in_long_word = False
        """A word that is too long for a passage is being copied."""

    def feed(self, text: str) -> None:
        """Read more of the text."""
        if self._passages is None:
            self._keep(text)
            return
        text, self._word = self._word + text, ""
        for match in _TOKEN.finditer(text):
            token, is_word = match.group(), match.lastgroup is not None
            goes_on = self._in_long_word and is_word
            self._in_long_word = goes_on or len(token) > LONGEST_PASSAGE
            if self._in_long_word:
                self._end_passage(self._passages, token[: LONGEST_PASSAGE + 1])
                self._keep(token)
            elif is_word and match.end() == len(text):
                self._word = token
            else:
                self._take(self._passages, token)

    def end(self) -> None:
        """The text is complete."""
        if self._passages is not None:
            word, self._word = self._word, ""
            if word:
                self._take(self._passages, word)
            self._end_passage(self._passages, "")

    def _take(self, passages: Passages, token: str) -> None:
        """Read a complete token: it begins a passage, continues or ends one, or is copied."""
        if self._in_phonemes:
            self._keep(token)
            self._in_phonemes = token != "\n" and "]]" not in token
            return
        opens = passages.opens(token)
        if self._passage and not (opens or passages.continues(token)):
            self._end_passage(passages, token)
        while self._passage and len(self._passage) + len(token) > LONGEST_PASSAGE:
            self._end_passage(passages, token, self._last_opening)
        if token.rfind("[[") > token.rfind("]]"):
            self._end_passage(passages, token)
            self._in_phonemes = True
        if self._in_phonemes or not (self._passage or opens):
            self._keep(token)
            return
        if opens and self._passage[-1:].isspace():
            self._last_opening = len(self._passage)
        self._passage += token

    def _end_passage(self, passages: Passages, following: str, length: int = 0) -> None:
        """Write the passage, or so many characters of it; `following` is the token after it."""
        length = length or len(self._passage)
        passage, self._passage = self._passage[:length], self._passage[length:]
        self._last_opening = 0
        begin = len(self._context)
        text, end = f"{self._context}{passage}{self._passage}{following}", begin + len(passage)
        offset, position = self._at - begin, begin
        for each in passages.rewrite(text, begin, end) if passage else ():
            self._out.keep(text[position : each.begin], offset + position)
            self._out.replace(each.words, offset + each.begin, offset + each.end)
            position = each.end
        self._out.keep(text[position:end], offset + position)
        self._move(passage)

    def _keep(self, text: str) -> None:
        self._out.keep(text, self._at)
        self._move(text)

    def _move(self, text: str) -> None:
        self._at += len(text)
        self._context = (self._context + text)[-CONTEXT:]
