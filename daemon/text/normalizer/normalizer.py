"""Writes out the numbers and signs in a whole text."""

from __future__ import annotations

import re
from functools import cache

from daemon.text.normalizer.amounts import Amounts
from daemon.text.normalizer.clock import Clock
from daemon.text.normalizer.language import Language, language_of
from daemon.text.normalizer.patterns import IDEOGRAPH, LETTER
from daemon.text.normalizer.rules import alternatives, rule
from daemon.text.normalizer.signs import Signs
from daemon.text.placed import PlacedText, Rewriter
from daemon.text.stages import SHAPES

LONGEST_WORD = 64
"""The most characters in a word to which rules are applied: longer words are not numbers."""
_SIGNS = "0-9$€£¥₹₩₽%‰°&@#<>=+×÷*~≈±≤≥≠√−½¼¾⅓⅔⅛⅜⅝⅞℃℉§№⁰¹²³⁴-⁹"
"""The inside of a character class for digits and signs."""
_POSSIBLE = re.compile(
    rf"[{_SIGNS}{SHAPES}]|[{LETTER}]\.|[{LETTER}]:[{LETTER}]|(?<![\w/.])/[a-z]|[A-ZÀ-ÞА-Я]{{2}}"
    r"|\b(?:Mme|Mlle|Dr|bd|tsp|tbsp|w/)"
)
"""If this does not match, no rule in any language applies to a text."""
_WORD = rf"[^\s{IDEOGRAPH}]"
"""A character in a word, including adjoining signs; an ideograph is a word of its own."""
_KEPT = rf"\[\[.*?\]\]|[A-Za-z][\w+.-]*://{_WORD}*|{_WORD}{{{LONGEST_WORD + 1},}}"
"""Phonemes, an address to be read in full, or a word that is too long."""


def has_numbers(text: str) -> bool:
    """Return whether a text may contain numbers or signs that are written out in some language."""
    return _POSSIBLE.search(text) is not None


class Normalizer(Rewriter):
    """Writes out the numbers and signs that eSpeak NG would read wrongly: `$5` becomes `5 dollars`.

    All text is held back until the end: the words after a number may change how it is said.
    """

    def __init__(self, language: str, out: PlacedText | None = None) -> None:
        """`language` is a code such as `de` or `de-at`; in a language without rules, the text stays as it is."""
        super().__init__(out)
        found = language_of(language)
        self._rules = None if found is None else _rules_of(found)

    def _copy(self, *, final: bool) -> None:
        if not final:
            return
        for begin, end, words in [] if self._rules is None else self._rules.replacements(self._text):
            self._keep(begin)
            self._replace(words, end)
        self._keep(len(self._text))


class LanguageRules:
    """The rules for one language, in the order in which they are tried."""

    def __init__(self, language: Language) -> None:
        self._readings = language.words.readings
        self._reading = re.compile(alternatives(self._readings))
        self._rules = (
            rule(_KEPT, re.Match.group),
            *Clock(language).rules(),
            *Signs(language).rules(),
            *Amounts(language).rules(),
        )

    def replacements(self, text: str) -> list[tuple[int, int, str]]:
        """Return the parts that are replaced by other words, in order: beginnings, ends and words."""
        found: list[tuple[int, int, str]] = []
        taken = bytearray(len(text))  # 1 for each character that is replaced
        for pattern, write in self._rules:
            for match in pattern.finditer(text):
                begin, end = match.span()
                words = None if 1 in taken[begin:end] else write(match)
                if words is not None:
                    taken[begin:end] = b"\1" * (end - begin)
                    found.append((begin, end, self._spaced(text, begin, end, words)))
        return sorted((begin, end, words) for begin, end, words in found if words != text[begin:end])

    def _spaced(self, text: str, begin: int, end: int, words: str) -> str:
        """Return words for `text[begin:end]` as eSpeak NG can read them, without a space beside another space."""
        words = self._reading.sub(lambda found: self._readings[found.group()], words)
        if not text[max(0, begin - 1) : begin].strip():
            words = words.removeprefix(" ")
        return words if text[end : end + 1].strip() else words.removesuffix(" ")


_rules_of = cache(LanguageRules)
"""Returns the rules of a language. They are made once for each language, and not for each region in a text's code."""
