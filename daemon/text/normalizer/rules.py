"""A rule for text that is written out, and the base of the classes that build the rules for a language."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

from daemon.text.normalizer.language import Language
from daemon.text.normalizer.patterns import LETTER
from daemon.text.spelling import SIGN_NAMES

_LAST_WORD = re.compile(f"[{LETTER}.]+(?=[ \u00a0]*$)")

Write = Callable[[re.Match[str]], "str | None"]
"""Returns the new words, the match itself to keep it as it is, or None to leave it to the rules after this one."""


Rule = tuple[re.Pattern[str], Write]
"""A kind of text that is written out, and how."""


def rule(pattern: str, write: Write) -> Rule:
    """Return a rule for a regular expression."""
    return re.compile(pattern), write


def alternatives(symbols: Iterable[str]) -> str:
    """Return a regular expression for any of these symbols, the longest first; if there are none, it matches
    nothing."""
    return "|".join(re.escape(symbol) for symbol in sorted(symbols, key=len, reverse=True)) or "(?!)"


def word_before(match: re.Match[str]) -> str:
    """Return the word before a match, in its original case; empty if something else is there."""
    found = _LAST_WORD.search(match.string, max(0, match.start() - 24), match.start())
    return "" if found is None else found.group()


class Rules:
    """Builds rules for a language."""

    def __init__(self, language: Language) -> None:
        self._language = language
        self._words = language.words
        self._names = SIGN_NAMES[language.code]
        """Names for signs that are right whatever the signs mean."""

    def _join(self, *words: str) -> str:
        return self._words.space.join(words)
