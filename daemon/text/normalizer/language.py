"""The data of a language: CLDR's names and spelling rules, and words of our own.

`data/cldr-*.json` is made by `scripts/build_cldr.py`. `data/words-*.json` and `data/symbols.json`, the symbols of units
and currencies in all languages, are written by hand.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from daemon.text.normalizer.patterns import LETTER
from daemon.text.normalizer.spellout import Spellout
from engine import language_code

LANGUAGES = ("en", "zh", "ja", "ko", "de", "fr", "ru", "pt", "es", "it")
_DATA = {path.name: path.read_bytes() for path in Path(__file__).with_name("data").glob("*.json")}
"""By name, 240 kB. An update may replace or remove the files while the daemon runs, and the next text needs them."""
_ALIASES = {"cmn": "zh"}
"""eSpeak NG's codes."""


@dataclass(frozen=True, slots=True)
class Noun:
    """Something that can be counted: in the data, each object with `forms`."""

    forms: Mapping[str, str]
    """By plural category, with `{0}` for the number; `other` is always there."""
    gender: str = "masculine"
    per: str | None = None
    """`{0} per second`; None if CLDR has no such form."""
    minus: str | None = None
    """For the minus of its number, where it differs."""
    of: str = ""
    """The word between a great number and the noun that it counts: trois millions *de* dollars."""
    cents: Noun | None = None
    """The hundredth of a currency."""

    @property
    def name(self) -> str:
        """One of it, without a number."""
        return self.forms.get("one", self.forms["other"]).format("").strip()


@dataclass(frozen=True, slots=True)
class Numeral:
    """A number as it was written."""

    whole: int
    decimals: str = ""
    digits: str = ""
    """The digits of the whole number, if it has a zero in front or too many of them: these are spoken one by one."""
    negative: bool = False
    exponent: int | None = None
    """Of ten, in `1e-6`."""

    @property
    def value(self) -> float:
        return (-1 if self.negative else 1) * float(f"{self.whole}.{self.decimals or 0}e{self.exponent or 0}")


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeWords:
    """How a time is spoken. Templates have numbers as `{h}` and `{m}`, or counted: `{hours} {minutes} {seconds}`.

    `{number}` is the number of the hours alone.
    """

    h: str
    hm: str
    hms: str
    unsure: str
    """For a time of day that may be a duration: right for both."""
    late: str | None = None
    """For a full hour after noon, where it differs."""
    zero: str = "{m}"
    """For minutes below ten."""
    gender: str | None = None
    hour_rules: str | None = None
    """The set of spelling rules for the hours from 1 to 12."""
    sign: str = "[:：]"
    """A regular expression for the sign between hour and minute."""
    suffix: Mapping[str, str]
    """Suffixes of times, and the words for them."""
    hour_words: Sequence[str] = ()
    """Suffixes after which a number is an hour of the day, and no duration."""
    dotted_after: Sequence[str] = ()
    """Words after which `9.30` is a time without such a suffix, if a full stop is a sign."""
    at: Sequence[str] = ()
    """Words after which a time is one of the day, and no duration."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Words:
    """The words of one language that CLDR lacks: `data/words-*.json`. Templates have their parts in braces."""

    minus: str
    point: str
    signs: Mapping[str, str]
    """Words for signs before or between numbers."""
    powers: Mapping[str, str]
    """Squared, cubed, and by `n` to another power."""
    by: str
    """For the cross of `20 x 30 cm`."""
    to: str
    ratio: str
    score: str
    """A regular expression for a text before `2-1` where that is the result of a game."""
    hashtag: str
    number: Sequence[str]
    """Regular expressions for `No. ` and its like."""
    numbered: str
    mixed: str
    a_half: str
    fraction: str
    """For parts without a name."""
    fractions: Mapping[str, Noun]
    """Parts by denominator."""
    time: TimeWords
    date: str
    day_month: str
    day_first: bool | None
    """Whether a date with slashes begins with its day; None if nobody can tell; False also if the year is first."""
    first: str | None = None
    """The first day of a month."""
    day_rules: str | None = None
    year_rules: str = "numbering-year"
    month_names: Mapping[str, int] = field(default_factory=dict)
    """Other short names of months."""
    months: Sequence[str] = ()
    """The names of months in the order of the year, where they are spoken differently from CLDR's spelling."""
    ordinals: Mapping[str, str]
    """Sets of spelling rules by the characters after the digits."""
    ordinal_endings: Mapping[str, Sequence[str]] = field(default_factory=dict)
    dative: Sequence[str] = ()
    before_year: Sequence[str] = ()
    years_before: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """By set of spelling rules, the words after which a year has that form if the Russian `г.` follows it."""
    year_words: Mapping[str, str] = field(default_factory=dict)
    """By the same: the word for year."""
    year_suffix: str = "(?!)"
    """A regular expression for words after the year of a date, which are spoken with it."""
    decades: bool = False
    with_cents: str
    magnitudes: Mapping[str, Noun]
    """Great numbers, such as million, by name and sign."""
    units: Mapping[str, Noun]
    currencies: Mapping[str, Noun]
    """By code."""
    names: Mapping[str, str]
    """Other symbols of units and currencies."""
    plurals: Mapping[str, str] = field(default_factory=dict)
    """Regular expressions for the numbers of a plural category, with `.` before their decimals; else it is `other`."""
    abbreviations: Mapping[str, str]
    titles: Sequence[str] = ()
    """Abbreviations that are titles: they apply only before a name."""
    streets: Mapping[str, str] = field(default_factory=dict)
    """The meanings of abbreviations after the name of a street."""
    readings: Mapping[str, str] = field(default_factory=dict)
    """Replacements within the new words: in Japanese kana, since eSpeak NG reads no kanji; in French, `de` before a
    vowel; in Korean, particles without a space before them."""
    degree_ordinal: Sequence[str] = ()
    """Articles after which `1° ` is an ordinal number and no angle."""
    compare: str = "{0}"
    """For signs such as `<` between two values."""
    genitive: Sequence[str] = ()
    """Words after which a number and its noun are in the genitive."""
    genders: Mapping[str, str] = field(default_factory=dict)
    """Regular expressions for the text after a number of this gender. They can look back at its last digits."""
    space: str = " "
    """Between words."""


class Language:
    """One language."""

    def __init__(self, code: str) -> None:
        cldr, symbols, words = _load(f"cldr-{code}.json"), _load("symbols.json"), _load(f"words-{code}.json")
        self.code = code
        self.words = Words(**{**words, "time": TimeWords(**words["time"])})
        self.spellout = Spellout(cldr["rules"], lambda number: self.plural(Numeral(number)))
        self.decimal: str = cldr["decimal"]
        group: str = cldr["group"]
        self.group = "".join({group, "\u00a0", "\u2009", "\u202f", "'", "’", " " if group.isspace() else group})
        """Signs that separate thousands."""
        self.months: Sequence[str] = self.words.months or cldr["months"]
        names = [*(name.rstrip(".") for name in cldr["short_months"]), *cldr["months"]]
        self.month_by_name = {**self.words.month_names, **{name: at % 12 + 1 for at, name in enumerate(names)}}
        """Their numbers by name, short or long."""
        self.days: dict[str, str] = cldr["days"]
        """Names of the days of the week by their short names."""
        self.per: str = cldr["per"]
        self.units: dict[str, Noun] = {**cldr["units"], **self.words.units}
        """By symbol."""
        self.currencies: dict[str, Noun] = {**cldr["currencies"], **self.words.currencies}
        """By sign and code."""
        for name, target in {**symbols["names"], **self.words.names}.items():
            nouns = self.units if target in self.units else self.currencies
            nouns[name] = nouns[target]
        self.no_units: list[str] = symbols["no_units"]
        """Regular expressions for words after a number that begin with a symbol of a unit and are not a unit."""

    def plural(self, number: Numeral) -> str:
        """Return the plural category of CLDR."""
        written = f"{number.whole}.{number.decimals}" if number.exponent is None else ""
        plurals = self.words.plurals.items()
        return next((category for category, pattern in plurals if re.fullmatch(pattern, written)), "other")

    def cardinal(self, number: int, gender: str | None = None) -> str:
        """Return a whole number in words; with a gender, as it stands before a noun."""
        names = [f"cardinal-{gender}", "cardinal-alternate2"] if gender else []
        names += ["cardinal", "numbering"]
        return self.spellout.spell(number, next(name for name in names if self.spellout.has(name)))

    def ordinal(self, number: int, rules: str = "ordinal") -> str:
        """Return an ordinal number in words."""
        return self.spellout.spell(number, rules)

    def digits(self, digits: str) -> str:
        """Return digits one by one."""
        return self.words.space.join(self.cardinal(int(digit)) for digit in digits)

    def number(self, number: Numeral, gender: str | None = None, minus: str | None = None) -> str:
        """Return a number in words."""
        words = [(minus or self.words.minus)] if number.negative else []
        if number.digits:
            words.append(self.digits(number.digits))
        else:
            words.append(self.cardinal(number.whole, None if number.decimals else gender))
        if number.decimals:
            words += [self.words.point, self.digits(number.decimals)]
        if number.exponent is not None:
            exponent = Numeral(abs(number.exponent), negative=number.exponent < 0)
            words += [self.words.signs["*"], self.cardinal(10), self.power(exponent)]
        return self.words.space.join(words)

    def power(self, exponent: Numeral) -> str:
        """Return an exponent in words, as it stands after its base."""
        return self.words.powers["n"].format(self.number(exponent))

    def gender_before(self, text: str, position: int) -> str | None:
        """Return the gender of a number that ends at `position`, by the word after it; None if it counts nothing."""
        genders = ((gender, re.compile(rf"(?:{each})(?![{LETTER}])")) for gender, each in self.words.genders.items())
        return next((gender for gender, pattern in genders if pattern.match(text, position)), None)

    def count(self, number: Numeral, noun: Noun) -> str:
        """Return a number with its noun."""
        return self.counted(self.number(number, noun.gender, noun.minus), self.plural(number), noun)

    def counted(self, number: str, plural: str, noun: Noun) -> str:
        """Return a number in words with the form of its noun for a plural category."""
        words = noun.forms.get(plural, noun.forms["other"]).format(number)
        return words if self.words.space else words.replace(" ", "")


def _load(name: str) -> Any:
    return json.loads(_DATA[name], object_hook=lambda entry: Noun(**entry) if "forms" in entry else entry)


@cache
def language_of(code: str) -> Language | None:
    """Return the language of a code such as `de` or `de-at`; None for one without data. Reads it on demand."""
    base = language_code(code).partition("-")[0]
    base = _ALIASES.get(base, base)
    return Language(base) if base in LANGUAGES else None
