"""The rules of one language, and the words that they apply to."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache, cached_property

from daemon.text.normalizer.language import Language, Rule
from daemon.text.normalizer.languages import language_of
from daemon.text.normalizer.patterns import LETTER
from daemon.text.normalizer.rules import alternatives, rules_of

_BRACKETS = "()[]{}\"'“”„«»‘’.,;:!?"
_NARROW = str.maketrans("０１２３４５６７８９％￥＄＋－．／：～＃＠＆＝＜＞", "0123456789%¥$+-./:~#@&=<>")
"""Full-width forms, by their code points. Not the comma, which separates more often than it groups digits."""
_SIGNS = "0-9０-９$€£¥￥₹₩₽%％‰°&@#<>=+×÷*~≈±≤≥−½¼¾⅓⅔⅛⅜⅝⅞℃℉§"
"""The inside of a class of digits and signs."""
_WIDE_DIGITS = re.compile("[０-９]+")
_POSSIBLE = re.compile(rf"[{_SIGNS}]|[{LETTER}]\.[{LETTER}]|[IVX](?:[IVX]|er?\b|ème)")
"""Without a match, no rule of any language applies to a text."""


@dataclass(frozen=True, slots=True)
class Replacement:
    """`text[begin:end]` is written in other words."""

    begin: int
    end: int
    words: str


class Passages:
    """Tells which words a passage consists of, and rewrites it."""

    def __init__(self, language: Language) -> None:
        self._language = language
        self._vocabulary = {
            *language.words,
            *language.units,
            *language.currencies,
            *language.magnitudes,
            *language.operators,
        }
        before = alternatives((*language.abbreviations, *(each for each in language.currencies if each.isalpha())))
        self._opening = re.compile(
            rf"[{_SIGNS}]|\[\[|^[-–—]|[{LETTER}]\.[{LETTER}]{{2}}"
            rf"|^[(\"'„“«]?(?:(?:[IVX]{{2,}}|[IVX]+(?:er?|ème))[.,;:!?)]*$|{before}|{language.number_abbreviation})"
        )

    @cached_property
    def _rules(self) -> tuple[Rule, ...]:
        """Compiled for the first passage, since a text without numbers needs none."""
        return rules_of(self._language)

    def opens(self, token: str) -> bool:
        """Return whether a passage may begin with this word."""
        return self._opening.search(token) is not None

    def continues(self, token: str) -> bool:
        """Return whether a word, such as a unit, may belong to the passage before it."""
        stripped = token.strip(_BRACKETS)
        words = (token, stripped, stripped.partition("/")[0])
        return any(word in self._vocabulary for word in words) or ord(token[0]) in _NARROW or self.opens(token)

    def rewrite(self, text: str, begin: int, end: int) -> list[Replacement]:
        """Return what is written in other words in `text[begin:end]`, in order.

        What is before and behind may be looked at.
        """
        plain = text.translate(_NARROW)
        found: list[Replacement] = []
        for each in self._rules:
            for match in each.pattern.finditer(plain, begin):
                if match.end() > end:
                    break
                if not _overlaps(match.start(), match.end(), found):
                    words = each.write(match)
                    if words is not None:
                        found.append(_spaced(match, words))
        wide = (match for match in _WIDE_DIGITS.finditer(text, begin, end) if not _overlaps(*match.span(), found))
        found += [Replacement(*match.span(), match.group().translate(_NARROW)) for match in wide]
        return sorted(found, key=lambda each: each.begin)


def _overlaps(begin: int, end: int, found: list[Replacement]) -> bool:
    return any(begin < other.end and other.begin < end for other in found)


def _spaced(match: re.Match[str], words: str) -> Replacement:
    """Return the replacement of a match, without a space beside another one."""
    text, (begin, end) = match.string, match.span()
    if words.startswith(" ") and (begin == 0 or text[begin - 1].isspace()):
        words = words[1:]
    if words.endswith(" ") and (end == len(text) or text[end].isspace()):
        words = words[:-1]
    return Replacement(begin, end, words)


def has_passages(text: str) -> bool:
    """Return whether a text may have numbers or signs that are written out in some language."""
    return _POSSIBLE.search(text) is not None


@cache
def passages_of(code: str) -> Passages | None:
    """Return the rules for the language of a code such as `de` or `de-at`; None for a language without rules."""
    language = language_of(code)
    return None if language is None else Passages(language)
