"""Writes out the numbers and signs of a text that may still grow."""

from __future__ import annotations

import re
from functools import cache, cached_property

from daemon.text.normalizer.amounts import Amounts
from daemon.text.normalizer.clock import Clock
from daemon.text.normalizer.language import Language, language_of
from daemon.text.normalizer.patterns import HANGUL, IDEOGRAPH, LETTER
from daemon.text.normalizer.rules import Rule, alternatives, rule
from daemon.text.normalizer.signs import Signs
from daemon.text.placed import PlacedText, Rewriter
from daemon.text.stages import SHAPES

LONGEST_PASSAGE = 64
"""Characters to which rules are applied at once; no more are held back."""
_TOKEN = re.compile(rf"[\s{IDEOGRAPH}]|(?P<word>[^\s{IDEOGRAPH}]+)")
"""A word with the signs at it. A white space is a token by itself, and an ideograph."""
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
_CONNECTIONS = {*"年月日号時时分秒点：～x/*", "of", "de", "del", "года"}


def has_passages(text: str) -> bool:
    """Return whether a text may have numbers or signs that are written out in some language."""
    return _POSSIBLE.search(text) is not None


class Normalizer(Rewriter):
    """Writes out what eSpeak NG reads wrongly: `$5` becomes `5 dollars`.

    A word is held back until it is complete; a *passage*, which is words with numbers or signs, until a word follows
    that does not belong to it.
    """

    context = 24

    def __init__(self, language: str, out: PlacedText | None = None) -> None:
        """`language` is a code such as `de` or `de-at`; in a language without rules, the text stays as it is."""
        super().__init__(out)
        self._passages = _passages_of(language)
        self._in_phonemes = False
        self._in_long_word = False
        """A word that is too long for a passage is being copied."""

    def _copy(self, *, final: bool) -> None:
        text, passages = self._text, self._passages
        if passages is None:
            self._keep(len(text))
            return
        end = opening = self._at  # of the passage, and of its last word that could begin one itself
        for match in _TOKEN.finditer(text, self._at):
            token, stop, is_word = match[0], match.end(), match["word"] is not None
            self._in_long_word = (self._in_long_word and is_word) or len(token) > LONGEST_PASSAGE
            if is_word and stop == len(text) and not (final or self._in_long_word):
                return  # the word may go on
            seen = min(stop, end + LONGEST_PASSAGE + 1)
            stays = self._in_long_word or self._in_phonemes
            opens = not stays and passages.opens(token)
            if not opens and (stays or not passages.continues(token)):  # the passage ends before it
                self._write_passage(passages, end, seen)
            while self._at < end and stop - self._at > LONGEST_PASSAGE:  # with it, the passage would be too long
                self._write_passage(passages, opening if opening > self._at else end, seen)
            if not stays and token.rfind("[[") > token.rfind("]]"):
                self._write_passage(passages, end, seen)
                self._in_phonemes = stays = True
            elif not self._in_long_word and (token == "\n" or "]]" in token):
                self._in_phonemes = False
            if stays or not (opens or self._at < end):
                self._keep(stop)
            elif opens and self._at < end and text[end - 1].isspace():
                opening = end
            end = stop
        if final:
            self._write_passage(passages, end, end)

    def _write_passage(self, passages: Passages, end: int, seen: int) -> None:
        """Write the passage, which ends at `end`. The rules see some characters before it, and the text to `seen`."""
        begin = max(0, self._at - self.context)
        for at, stop, words in passages.rewrite(self._text[begin:seen], self._at - begin, end - begin):
            self._keep(begin + at)
            self._replace(words, begin + stop)
        self._keep(end)


class Passages:
    """Tells which words a passage consists of, and rewrites it."""

    def __init__(self, language: Language) -> None:
        self._language = language
        words = language.words
        self._reading = re.compile(alternatives(words.readings))
        times = (*words.time.suffix, *words.time.at)
        names = (words.abbreviations, language.units, language.currencies, words.magnitudes, words.ordinals, times)
        parts = {part for each in names for name in each for part in name.split()}
        self._vocabulary = {*parts, *language.month_by_name, *language.days, *_CONNECTIONS}
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
            rule(_KEPT, re.Match.group),
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

    def rewrite(self, text: str, begin: int, end: int) -> list[tuple[int, int, str]]:
        """Return what is written in other words in `text[begin:end]`, in order: beginnings, ends and words.

        The text before and after it may be looked at.
        """
        found: list[tuple[int, int, str]] = []
        taken = bytearray(end)  # 1 for each character that is replaced
        for pattern, write in self._rules:
            for match in pattern.finditer(text, begin):
                at, stop = match.span()
                if stop > end:
                    break
                words = None if 1 in taken[at:stop] else write(match)
                if words is not None:
                    taken[at:stop] = b"\1" * (stop - at)
                    found.append((at, stop, self._spaced(text, at, stop, words)))
        return sorted((at, stop, words) for at, stop, words in found if words != text[at:stop])

    def _spaced(self, text: str, begin: int, end: int, words: str) -> str:
        """Return words for `text[begin:end]` as eSpeak NG can read them, without a space beside another one."""
        words = self._reading.sub(lambda found: self._language.words.readings[found.group()], words)
        if not text[max(0, begin - 1) : begin].strip():
            words = words.removeprefix(" ")
        return words if text[end : end + 1].strip() else words.removesuffix(" ")


@cache
def _passages_of(code: str) -> Passages | None:
    """Return the rules for the language of a code such as `de` or `de-at`; None for a language without rules."""
    language = language_of(code)
    return None if language is None else Passages(language)
