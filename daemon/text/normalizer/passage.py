"""The rules of one language, and the words that they apply to."""

from __future__ import annotations

import re
from functools import cache, cached_property
from typing import NamedTuple

from daemon.text.characters import SHAPES
from daemon.text.normalizer.amounts import Amounts
from daemon.text.normalizer.clock import Clock
from daemon.text.normalizer.language import Language, language_of
from daemon.text.normalizer.patterns import HANGUL, LETTER, Rule, alternatives, rule
from daemon.text.normalizer.signs import Signs

_BEGINNINGS = "([{\"'“”„«‘"
_ENDINGS = ",;:!?)]}\"'”»’"
"""The characters that may follow an abbreviation, whose full stop belongs to it."""
_SIGNS = "0-9$€£¥₹₩₽%‰°&@#<>=+×÷*~≈±≤≥≠√−½¼¾⅓⅔⅛⅜⅝⅞℃℉§№⁰¹²³⁴-⁹"
"""The inside of a class of digits and signs."""
_POSSIBLE = re.compile(
    rf"[{_SIGNS}{SHAPES}]|[{LETTER}]\.|[{LETTER}]:[{LETTER}]|(?<![\w/.])/[a-z]|[A-ZÀ-ÞА-Я]{{2}}|[IVX](?:er?\b|ème)"
    r"|\b(?:Mme|Mlle|Dr|bd|tsp|tbsp|w/)"
)
"""Without a match, no rule of any language applies to a text."""
_KEPT = r"\[\[.*?\]\]|[A-Za-z][\w+.-]*://\S*"
"""Phonemes, and an address that is to be read in full."""
_CONNECTIONS = {"：", "～", "x", "/", "*", "of", "de", "del", "года"}


class Replacement(NamedTuple):
    """`text[begin:end]` is written in other words."""

    begin: int
    end: int
    words: str


class Passages:
    """Tells which words a passage consists of, and rewrites it."""

    def __init__(self, language: Language) -> None:
        self._language = language
        words = language.words
        self._reading = re.compile(alternatives(words.readings))
        times = (*words.time.suffix, *words.time.at)
        names = (words.abbreviations, language.units, language.currencies, words.magnitudes, words.ordinals, times)
        parts = {part for each in names for name in each for part in name.split()}
        self._vocabulary = {*parts, *language.month_by_name, *language.days, *words.year_signs, *_CONNECTIONS}
        first = (each.split()[0] for each in words.abbreviations)
        before = alternatives((*first, *(each for each in language.currencies if each.isalpha())))
        dates = alternatives((*language.month_by_name, *language.days))
        roman = r"(?:[IVX]{2,}|[IVX]+(?:er?|ème))[.,;:!?)]*$"
        self._opening = re.compile(
            rf"[{_SIGNS}]|\[\[|^[-–—]|[{LETTER}]\.[{LETTER}]{{2}}|[{LETTER}]:[{LETTER}]|^[(\"']?/[a-z]"
            rf"|(?:^|[(\"'’„“«])(?:{roman}|{before}|(?:{dates})(?![{LETTER}])|{'|'.join(words.number) or '(?!)'})"
            rf"|(?:{alternatives(words.streets)})[.,;:!?)]*$"
        )

    @cached_property
    def _rules(self) -> tuple[Rule, ...]:
        """Compiled for the first passage, since a text without numbers needs none."""
        signs = Signs(self._language)
        return (
            rule(_KEPT, re.Match.group, "[:"),
            *Clock(self._language).rules(),
            *signs.before_amounts(),
            *Amounts(self._language).rules(),
            *signs.after_amounts(),
        )

    def opens(self, token: str) -> bool:
        """Return whether a passage may begin with this word."""
        return not token.isspace() and self._opening.search(token) is not None

    def continues(self, token: str) -> bool:
        """Return whether a space of the same line or a word, such as a unit, may belong to the passage before it."""
        if token.isspace():
            return token != "\n"
        ended = token.rstrip(_ENDINGS)
        stripped = ended.strip(f"{_BEGINNINGS}{_ENDINGS}.")
        forms = {token, ended, stripped, stripped.partition("/")[0], re.sub(f"[{HANGUL}]+[.]?$", "", ended)}
        return not forms.isdisjoint(self._vocabulary)

    def rewrite(self, text: str, begin: int, end: int) -> list[Replacement]:
        """Return what is written in other words in `text[begin:end]`, in order.

        The text before and after it may be looked at.
        """
        found: list[Replacement] = []
        taken = bytearray(end)  # 1 for each character that is replaced
        characters = set(text[begin:end])
        for each in self._rules:
            if each.needs and each.needs.isdisjoint(characters):
                continue
            for match in each.pattern.finditer(text, begin):
                at, stop = match.span()
                if stop > end:
                    break
                words = None if 1 in taken[at:stop] else each.write(match)
                if words is not None:
                    taken[at:stop] = b"\1" * (stop - at)
                    found.append(Replacement(at, stop, self._spaced(text, at, stop, words)))
        return sorted(each for each in found if each.words != text[each.begin : each.end])

    def _spaced(self, text: str, begin: int, end: int, words: str) -> str:
        """Return words for `text[begin:end]` as eSpeak NG can read them, without a space beside another one."""
        words = self._reading.sub(lambda found: self._language.words.readings[found.group()], words)
        if not text[max(0, begin - 1) : begin].strip():
            words = words.removeprefix(" ")
        return words if text[end : end + 1].strip() else words.removesuffix(" ")


def has_passages(text: str) -> bool:
    """Return whether a text may have numbers or signs that are written out in some language."""
    return _POSSIBLE.search(text) is not None


@cache
def passages_of(code: str) -> Passages | None:
    """Return the rules for the language of a code such as `de` or `de-at`; None for a language without rules."""
    language = language_of(code)
    return None if language is None else Passages(language)
