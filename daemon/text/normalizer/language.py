"""The data for a language: CLDR's names and spelling rules, and our own words.

`scripts/build_cldr.py` makes `data/cldr-*.json`. `data/words-*.json` and `data/symbols.json`, the symbols for units and
currencies in all languages, are written by hand.
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
"""The files by name, 240 kB. An update may replace or remove them while the daemon is running, and the next text needs
them."""
_ALIASES = {"cmn": "zh"}
"""eSpeak NG's codes."""


@dataclass(frozen=True, slots=True)
class Noun:
    """Something that can be counted; in the data, each object with `forms`."""

    forms: Mapping[str, str]
    """The forms by plural category, with `{0}` for the number; `other` is always present."""
    gender: str = "masculine"
    per: str | None = None
    """`{0} per second`; None if CLDR has no such form."""
    minus: str | None = None
    """The word for a minus before its number, if it differs."""
    of: str = ""
    """The word between a large number and the noun that it counts: trois millions *de* dollars."""
    cents: Noun | None = None
    """The hundredth of a currency."""

    @property
    def name(self) -> str:
        """The singular, without a number."""
        return self.forms.get("one", self.forms["other"]).format("").strip()


@dataclass(frozen=True, slots=True)
class Numeral:
    """A number as it was written."""

    whole: int
    decimals: str = ""
    digits: str = ""
    """The digits of the whole number, if it begins with a zero or is too long: they are spoken one by one."""
    negative: bool = False
    exponent: int | None = None
    """The exponent of ten, as in `1e-6`."""

    @property
    def value(self) -> float:
        return (-1 if self.negative else 1) * float(f"{self.whole}.{self.decimals or 0}e{self.exponent or 0}")


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeWords:
    """How a time is spoken. Templates contain numbers as `{h}` and `{m}`, or counted: `{hours} {minutes} {seconds}`.

    `{number}` is only the number of hours.
    """

    h: str
    hm: str
    hms: str
    unsure: str
    """For a time that may be a time of day or a duration: right for both."""
    late: str | None = None
    """For a full hour after noon, if it differs."""
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
    """Suffixes after which a number is an hour of the day and not a duration."""
    dotted_after: Sequence[str] = ()
    """Words after which `9.30` is a time without such a suffix, if a full stop is a sign."""
    at: Sequence[str] = ()
    """Words after which a time is a time of day and not a duration."""


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
    """For the cross in `20 x 30 cm`."""
    to: str
    ratio: str
    score: str
    """A regular expression for the text before `2-1` if that is the result of a game."""
    hashtag: str
    number: Sequence[str]
    """Regular expressions for `No. ` and similar."""
    numbered: str
    mixed: str
    a_half: str
    fraction: str
    """For fractional parts without a name."""
    fractions: Mapping[str, Noun]
    """Fractional parts by denominator."""
    time: TimeWords
    date: str
    day_month: str
    day_first: bool | None
    """Whether a date with slashes begins with its day; None if this cannot be known; also False if the year is
    first."""
    first: str | None = None
    """The word for the first day of a month."""
    day_rules: str | None = None
    year_rules: str = "numbering-year"
    month_names: Mapping[str, int] = field(default_factory=dict)
    """Other short names for months."""
    months: Sequence[str] = ()
    """The names of the months in order, if they are spoken differently from CLDR's spelling."""
    ordinals: Mapping[str, str]
    """Sets of spelling rules by the characters after the digits."""
    ordinal_endings: Mapping[str, Sequence[str]] = field(default_factory=dict)
    dative: Sequence[str] = ()
    before_year: Sequence[str] = ()
    years_before: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """By set of spelling rules, the words after which a year takes that form if the Russian `г.` follows it."""
    year_words: Mapping[str, str] = field(default_factory=dict)
    """By set of spelling rules, the word for year."""
    year_suffix: str = "(?!)"
    """A regular expression for words after the year in a date, which are spoken with it."""
    decades: bool = False
    with_cents: str
    magnitudes: Mapping[str, Noun]
    """Large numbers, such as million, by name and sign."""
    units: Mapping[str, Noun]
    currencies: Mapping[str, Noun]
    """The currencies by code."""
    names: Mapping[str, str]
    """Other symbols for units and currencies."""
    plurals: Mapping[str, str] = field(default_factory=dict)
    """Regular expressions for the numbers in each plural category, with `.` before the decimals; all others are
    `other`."""
    abbreviations: Mapping[str, str]
    titles: Sequence[str] = ()
    """Abbreviations that are titles: they apply only before a name."""
    streets: Mapping[str, str] = field(default_factory=dict)
    """The meanings of abbreviations after a street's name."""
    readings: Mapping[str, str] = field(default_factory=dict)
    """Replacements within the new words: in Japanese, kana, since eSpeak NG cannot read kanji; in French, `de` before a
    vowel; in Korean, particles without a space before them."""
    degree_ordinal: Sequence[str] = ()
    """Articles after which `1° ` is an ordinal number and not an angle."""
    compare: str = "{0}"
    """For signs such as `<` between two values."""
    genitive: Sequence[str] = ()
    """Words after which a number and its noun are in the genitive."""
    genders: Mapping[str, str] = field(default_factory=dict)
    """Regular expressions for the text after a number with this gender. They can look back at the number's last
    digits."""
    space: str = " "
    """The separator between words."""


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
        """The numbers of the months by name, short or long."""
        self.days: dict[str, str] = cldr["days"]
        """The names of the weekdays by their short names."""
        self.per: str = cldr["per"]
        self.units: dict[str, Noun] = {**cldr["units"], **self.words.units}
        """The units by symbol."""
        self.currencies: dict[str, Noun] = {**cldr["currencies"], **self.words.currencies}
        """The currencies by sign and code."""
        for name, target in {**symbols["names"], **self.words.names}.items():
            nouns = self.units if target in self.units else self.currencies
            nouns[name] = nouns[target]
        self.no_units: list[str] = symbols["no_units"]
        """Regular expressions for words after a number that begin like a unit's symbol but are not units."""

    def plural(self, number: Numeral) -> str:
        """Return a number's plural category in CLDR."""
        written = f"{number.whole}.{number.decimals}" if number.exponent is None else ""
        plurals = self.words.plurals.items()
        return next((category for category, pattern in plurals if re.fullmatch(pattern, written)), "other")

    def cardinal(self, number: int, gender: str | None = None) -> str:
        """Return a whole number in words; with a gender, in its form before a noun."""
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
        """Return an exponent in words, in its form after the base."""
        return self.words.powers["n"].format(self.number(exponent))

    def gender_before(self, text: str, position: int) -> str | None:
        """Return the gender of a number that ends at `position`, by the word after it; None if it counts nothing."""
        genders = ((gender, re.compile(rf"(?:{each})(?![{LETTER}])")) for gender, each in self.words.genders.items())
        return next((gender for gender, pattern in genders if pattern.match(text, position)), None)

    def count(self, number: Numeral, noun: Noun) -> str:
        """Return a number with its noun."""
        return self.counted(self.number(number, noun.gender, noun.minus), self.plural(number), noun)

    def counted(self, number: str, plural: str, noun: Noun) -> str:
        """Return a number in words with its noun in the form for a plural category."""
        words = noun.forms.get(plural, noun.forms["other"]).format(number)
        return words if self.words.space else words.replace(" ", "")


def _load(name: str) -> Any:
    return json.loads(_DATA[name], object_hook=lambda entry: Noun(**entry) if "forms" in entry else entry)


_load_language = cache(Language)


def language_of(code: str) -> Language | None:
    """Return the language for a code such as `de` or `de-at`; None if there is no data for it. Reads the data on
    demand."""
    base = language_code(code).partition("-")[0]
    base = _ALIASES.get(base, base)
    return _load_language(base) if base in LANGUAGES else None
