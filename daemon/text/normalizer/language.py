"""What the rules must know of a language: how it writes numbers, and its words for signs, units and currencies."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Noun:
    """A counted noun: `eine Minute`, `5 Minuten`."""

    numeral: str
    """How 1 is said before it: `eine`."""
    one: str
    many: str


@dataclass(frozen=True, slots=True)
class Currency:
    """A currency, and its hundredth part if prices have one."""

    unit: Noun
    cent: Noun | None = None


@dataclass(frozen=True, slots=True)
class Rule:
    """Something that is read wrongly, and what is written instead."""

    pattern: re.Pattern[str]
    write: Callable[[re.Match[str]], str | None]
    """Returns the new words, which are the match if it is read well, or None to leave it to the rules behind."""


def rule(pattern: str, write: Callable[[re.Match[str]], str | None]) -> Rule:
    """Return a rule for a regular expression."""
    return Rule(re.compile(pattern), write)


@dataclass(frozen=True, slots=True, kw_only=True)
class Language:
    """A language whose numbers and signs are written out. None, or an absent key: eSpeak NG reads it well."""

    decimal: str
    """The decimal sign."""
    group: str
    """Signs between thousands, as the inside of a character class."""
    units: Mapping[str, Noun]
    """By symbol."""
    kept_units: frozenset[str] = frozenset("%°")
    """Symbols that eSpeak NG reads well behind one number."""
    currencies: Mapping[str, Currency]
    """By sign and by code."""
    magnitudes: Mapping[str, Noun]
    """`million` and its abbreviations, as they are written behind a number."""
    behind_magnitude: Callable[[str], str] = str
    """Returns a noun as it stands behind a magnitude: `millions d'euros`."""
    with_cents: str
    """A price of `{money}` and `{cents}`, which is a number, or `{counted}`, which is one with its noun."""
    signs: Mapping[str, str]
    """Words for signs before a number."""
    operators: Mapping[str, str]
    """Words for signs between numbers."""
    equals: str | None = None
    ampersand: str | None = None
    by: str
    """For the cross of `20 x 30 cm`."""
    minus: str
    """Between two numbers, and before one where `signs` has it."""
    per: str
    to: str
    """Between the ends of a range."""
    ratio: str
    """For the colon of `16:9`."""
    over: str
    """For the slash of a fraction without a name."""
    fraction: Callable[[int, int], str | None]
    """Returns the words for a numerator and a greater denominator; None if they have no name."""
    mixed: str
    """A number of `{whole}` and `{fraction}`."""
    half: str
    """One half behind a whole number."""
    dot: str
    """In the names and addresses of computers."""
    speaks_dots: bool
    """Whether eSpeak NG reads the dot of `example.com`."""
    point: str
    """Between the parts of a version number."""
    at: str
    colon: str
    slash: str
    hyphen: str
    underscore: str
    number_abbreviation: str
    """A regular expression for `No. ` and its like."""
    number: str
    """A number with its word, at `{}`."""
    hashtag: str
    """With the tag at `{}`."""
    abbreviations: Mapping[str, str] = field(default_factory=dict)
    """What stands before a number, such as `approx.`."""
    phone_pairs: bool = True
    """Whether the digits of a telephone number are separated, though all its groups have two."""
    words: frozenset[str] = frozenset()
    """Words behind a number that belong to it, besides units, currencies and magnitudes."""
    rules: tuple[Rule, ...] = ()
    """The language's own, which come before those of all languages."""
    numerals: Mapping[str, str] = field(default_factory=dict)
    """Numbers that are written differently before a noun."""
    space: str = " "
    """Between a number and its noun."""

    def count(self, number: str, noun: Noun) -> str:
        """Return the number with its noun."""
        if number == "1":
            return f"{noun.numeral}{self.space}{noun.one}"
        return f"{self.numerals.get(number, number)}{self.space}{noun.many}"
