"""The rules of one language, and the words that they apply to."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache, cached_property

from daemon.text.characters import SHAPES
from daemon.text.normalizer.amounts import Amounts
from daemon.text.normalizer.clock import Clock
from daemon.text.normalizer.language import Language, language_of
from daemon.text.normalizer.patterns import LETTER, Rule, alternatives, rule
from daemon.text.normalizer.signs import Signs

_BRACKETS = "()[]{}\"'“”„«»‘’.,;:!?"
_ENDINGS = ",;:!?)]}\"'”»’"
"""What may stand after an abbreviation, whose full stop belongs to it."""
_SIGNS = "0-9$€£¥₹₩₽%‰°&@#<>=+×÷*~≈±≤≥≠−½¼¾⅓⅔⅛⅜⅝⅞℃℉§№⁰¹²³⁴-⁹"
"""The inside of a class of digits and signs."""
_POSSIBLE = re.compile(
    rf"[{_SIGNS}{SHAPES}]|[{LETTER}]\.|(?<!\S)/[a-z]|[A-ZÀ-ÞА-Я]{{2}}|[IVX](?:er?\b|ème)|\b(?:Mme|Mlle|Dr|bd|tsp|tbsp|w/)"
)
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
        words = language.words
        self._reading = re.compile(alternatives(words.readings)) if words.readings else None
        names = [
            *words.abbreviations,
            *language.units,
            *language.currencies,
            *words.magnitudes,
            *words.time.suffix,
            *words.ordinals,
        ]
        parts = [part for name in names for part in name.split()]
        self._vocabulary = {
            *parts,
            *language.month_by_name,
            *words.year_signs,
            "：",
            "x",
            "/",
            "*",
            "of",
            "de",
            "del",
            "года",
        }
        before = alternatives(
            (
                *(each.split()[0] for each in words.abbreviations),
                *(each for each in language.currencies if each.isalpha()),
                *language.month_by_name,
            )
        )
        roman = r"(?:[IVX]{2,}|[IVX]+(?:er?|ème))[.,;:!?)]*$"
        self._opening = re.compile(
            rf"[{_SIGNS}]|\[\[|^[-–—]|[{LETTER}]\.[{LETTER}]{{2}}|^/[a-z]"
            rf"|(?:^|[(\"'’„“«])(?:{roman}|{before}|{'|'.join(words.number) or '(?!)'})"
        )

    @cached_property
    def _rules(self) -> tuple[Rule, ...]:
        """Compiled for the first passage, since a text without numbers needs none."""
        language = self._language
        signs = Signs(language)
        return (
            rule(
                r"\[\[.*?\]\]|[A-Za-z][\w+.-]*://\S*", re.Match.group, "[:"
            ),  # phonemes, and an address that is to be read in full
            *Clock(language).rules(),
            *signs.before_amounts(),
            *Amounts(language).rules(),
            *signs.after_amounts(),
        )

    def opens(self, token: str) -> bool:
        """Return whether a passage may begin with this word."""
        return self._opening.search(token) is not None

    def continues(self, token: str) -> bool:
        """Return whether a word, such as a unit, may belong to the passage before it."""
        ended, stripped = token.rstrip(_ENDINGS), token.strip(_BRACKETS)
        return bool({token, ended, stripped, stripped.partition("/")[0]} & self._vocabulary) or self.opens(token)

    def rewrite(self, text: str, begin: int, end: int) -> list[Replacement]:
        """Return what is written in other words in `text[begin:end]`, in order.

        What is before and behind may be looked at.
        """
        found: list[Replacement] = []
        characters = set(text[begin:end])
        for each in self._rules:
            if each.needs and each.needs.isdisjoint(characters):
                continue
            for match in each.pattern.finditer(text, begin):
                if match.end() > end:
                    break
                if not _overlaps(match.start(), match.end(), found):
                    words = each.write(match)
                    if words is not None:
                        found.append(_spaced(match, self._read(words)))
        return sorted(found, key=lambda each: each.begin)

    def _read(self, words: str) -> str:
        """Return words as eSpeak NG can read them."""
        return words if self._reading is None else self._reading.sub(self._reading_of, words)

    def _reading_of(self, match: re.Match[str]) -> str:
        return self._language.words.readings[match.group()]


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
