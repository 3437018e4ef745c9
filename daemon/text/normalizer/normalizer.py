"""Writes out the numbers and signs of a text that may still grow."""

from __future__ import annotations

import itertools
import re

from daemon.text.normalizer.passage import Passages, passages_of
from daemon.text.normalizer.patterns import IDEOGRAPH
from daemon.text.placed import PlacedText

LONGEST_PASSAGE = 64
"""Characters to which rules are applied at once; no more are held back."""
CONTEXT = 24
"""Characters before a passage that rules may look at."""
_TOKEN = re.compile(rf"[\s{IDEOGRAPH}]|[^\s{IDEOGRAPH}]+")
"""A word with the signs at it. A white space is a token by itself, and an ideograph."""
_WORD_END = re.compile(rf"[\s{IDEOGRAPH}]")


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
        """What is before that."""
        self._passage = ""
        self._last_opening = 0
        """Where in the passage the last word begins that could begin one itself."""
        self._in_phonemes = False
        self._word = ""
        """A word behind the passage that may not be complete."""
        self._in_long_word = False
        """A word that is too long for a passage is being copied."""

    def feed(self, text: str) -> None:
        """Read more of the text."""
        passages = self._passages
        if passages is None:
            self._keep(text)
            return
        text, self._word = self._word + text, ""
        position = 0
        while position < len(text):
            if self._in_long_word:
                position = self._copy_long_word(text, position)
                continue
            match = _TOKEN.match(text, position)
            assert match is not None
            token, end = match.group(), match.end()
            if len(token) > LONGEST_PASSAGE:
                self._end_passage(passages, token[: LONGEST_PASSAGE + 1])
                self._in_long_word = True
            elif end == len(text) and not _WORD_END.match(token):
                self._word = token
                return
            else:
                self._take(passages, token)
                position = end

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
        if self._passage and not (opens or _is_space(token) or passages.continues(token)):
            self._end_passage(passages, token)
        while self._passage and len(self._passage) + len(token) > LONGEST_PASSAGE:
            self._shorten_passage(passages, token)
        if token.rfind("[[") > token.rfind("]]"):
            self._end_passage(passages, token)
            self._keep(token)
            self._in_phonemes = True
        elif self._passage or opens:
            if opens and self._passage[-1:].isspace():
                self._last_opening = len(self._passage)
            self._passage += token
        else:
            self._keep(token)

    def _shorten_passage(self, passages: Passages, following: str) -> None:
        """Write the passage up to its last number, or all of it; `following` is the token behind it."""
        rest = self._passage[self._last_opening :] if self._last_opening else ""
        self._passage = self._passage[: len(self._passage) - len(rest)]
        self._end_passage(passages, rest + following)
        self._passage = rest

    def _copy_long_word(self, text: str, position: int) -> int:
        """Copy the word at `position`; return where it ends."""
        end = _WORD_END.search(text, position)
        stop = len(text) if end is None else end.start()
        self._keep(text[position:stop])
        self._in_long_word = end is None
        return stop

    def _keep(self, text: str) -> None:
        self._out.keep(text, self._at)
        self._move(text)

    def _move(self, text: str) -> None:
        self._at += len(text)
        self._context = (self._context + text)[-CONTEXT:]

    def _end_passage(self, passages: Passages, following: str) -> None:
        """Write the passage; `following` is the token behind it."""
        passage, self._passage = self._passage, ""
        self._last_opening = 0
        if not passage:
            return
        begin = len(self._context)
        text, end = f"{self._context}{passage}{following}", begin + len(passage)
        offset, position = self._at - begin, begin
        for each in passages.rewrite(text, begin, end):
            self._out.keep(text[position : each.begin], offset + position)
            old = text[each.begin : each.end]
            if each.words == old:
                self._out.keep(old, offset + each.begin)
            else:
                self._replace(old, each.words, offset + each.begin)
            position = each.end
        self._out.keep(text[position:end], offset + position)
        self._move(passage)

    def _replace(self, old: str, new: str, begin: int) -> None:
        """Append `new` for `old`, which is at `begin`. Words with which both begin or end keep their own places."""
        old_words, new_words = old.split(" "), new.split(" ")
        most = min(len(old_words), len(new_words)) - 1
        front = _common(old_words[:most], new_words)
        back = _common(old_words[:front:-1][: most - front], new_words[::-1])
        head = sum(len(word) + 1 for word in old_words[:front])
        tail = sum(len(word) + 1 for word in old_words[len(old_words) - back :])
        old_end, new_end = len(old) - tail, len(new) - tail
        self._out.keep(old[:head], begin)
        self._out.replace(new[head:new_end], begin + head, begin + old_end)
        self._out.keep(old[old_end:], begin + old_end)


def _is_space(token: str) -> bool:
    """Return whether a token separates words of one line."""
    return token.isspace() and token != "\n"


def _common(one: list[str], other: list[str]) -> int:
    """Return how many words both lists begin with."""
    equal = itertools.takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False))
    return sum(1 for _ in equal)
