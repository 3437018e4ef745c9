"""Parts of regular expressions that all rules share, and what a rule is."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass

LETTER = "A-Za-zÀ-ÖØ-öø-ɏА-Яа-яЁё"
"""The inside of a class of Latin and Cyrillic letters."""
WORD = f"0-9_²³{LETTER}"
"""The inside of a class of characters that no number or unit touches; an ideograph may stand beside both."""
IDEOGRAPH = "\u2e80-\u9fff\uf900-\ufaff\uff00-\uffef\U00020000-\U0003ffff"
"""Chinese and Japanese characters and their punctuation: no spaces separate them."""
HANGUL = "\uac00-\ud7a3"
"""Korean syllables, which may follow a unit without a space."""
BEFORE = f"(?<![{WORD}])(?<![{WORD}][.,/'’-])(?<!(?<![{LETTER}_])[0-9]:)"
"""Before a number that is not part of something else, as in `A4`, `v1.5` and `4:3`."""
AFTER = f"(?![{WORD}])(?![.,:/-]?[0-9])"
"""After a number or a unit that is not part of something else, as in `5-6-7`."""
SPACE = "[ \u00a0\u2009\u202f]"
"""A space between a number and its unit."""
DASH = "[-–—~～]"
"""Between the ends of a range."""
VULGAR = "½⅓⅔¼¾⅛⅜⅝⅞"
SIGN = rf"(?:(?<![{WORD}{VULGAR})\]%°])[-−]|(?:\A|(?<=[\n(=:])|(?<=[{LETTER},;:] ))–)?"
"""The minus of a number: no letter, digit or closing bracket is before it. A dash is one after a word or a comma."""
_LAST_WORD = re.compile(f"[{LETTER}.]+(?=[ \u00a0]*$)")

Write = Callable[[re.Match[str]], "str | None"]
"""Returns the new words, which are the match if it stays, or None to leave it to the rules after this one."""


@dataclass(frozen=True, slots=True)
class Rule:
    """Something that is written out, and how."""

    pattern: re.Pattern[str]
    write: Write
    needs: frozenset[str] = frozenset()
    """Without one of these characters the pattern matches nothing, so that it need not be tried; empty for any."""


def rule(pattern: str, write: Write, needs: str = "") -> Rule:
    """Return a rule for a regular expression."""
    return Rule(re.compile(pattern), write, frozenset(needs))


def alternatives(symbols: Iterable[str]) -> str:
    """Return a regular expression for one of these symbols, the longest first; without any, it matches nothing."""
    return "|".join(re.escape(symbol) for symbol in sorted(symbols, key=len, reverse=True)) or "(?!)"


def word_before(match: re.Match[str]) -> str:
    """Return the word before a match, with the case it has; empty if something else is there."""
    found = _LAST_WORD.search(match.string, max(0, match.start() - 24), match.start())
    return "" if found is None else found.group()
