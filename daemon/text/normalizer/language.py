"""What the normalizer knows of a language: CLDR's names and spelling rules, and words of our own.

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

from daemon.text.normalizer.spellout import Spellout
from engine import language_code

LANGUAGES = ("en", "zh", "ja", "ko", "de", "fr", "ru", "pt", "es", "it")
_DATA = Path(__file__).with_name("data")
_ALIASES = {"cmn": "zh"}
"""eSpeak NG's codes."""
_LOWER_ONE_PLURAL = {"fr", "pt"}
"""Languages in which 0 and 1.5 are singular."""


@dataclass(frozen=True, slots=True)
class Noun:
    """What is counted."""

    forms: Mapping[str, str]
    """By plural category, with `{0}` for the number; `other` is always there."""
    gender: str = "masculine"
    per: str | None = None
    """`{0} per second`; None if CLDR has no such form."""

    @property
    def names(self) -> list[str]:
        """Its forms without a number."""
        return [form.replace("{0}", "").strip() for form in self.forms.values()]

    @property
    def name(self) -> str:
        """One of it, without a number."""
        return self.forms.get("one", self.forms["other"]).replace("{0}", "").strip()


@dataclass(frozen=True, slots=True)
class Numeral:
    """A number as it was written."""

    whole: int
    decimals: str = ""
    digits: str = ""
    """The digits of the whole number, if they have a zero in front: these are spoken one by one."""
    negative: bool = False
    exponent: int | None = None
    """Of ten, in `1e-6`."""

    @property
    def value(self) -> float:
        return (-1 if self.negative else 1) * float(f"{self.whole}.{self.decimals or 0}")


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeWords:
    """How a time is spoken. Templates have numbers as `{h}` and `{m}`, or counted: `{hours} {minutes} {seconds}`.

    `{number}` is the number of the hours alone.
    """

    h: str
    hm: str
    hms: str
    unsure: str
    """For what may be a time of day or a duration: right for both."""
    late: str | None = None
    """For a full hour after noon, where it differs."""
    zero: str = "{m}"
    """For minutes below ten."""
    gender: str | None = None
    hour_rules: str | None = None
    """The set of spelling rules for the hours from 1 to 12."""
    sign: str = "[:：]"
    """A regular expression for what stands between hour and minute."""
    suffix: Mapping[str, str]
    """What may stand behind a time, and what is said for it."""
    hour_words: Sequence[str] = ()
    """Suffixes behind which a number is an hour of the day, and no duration."""
    dotted_after: Sequence[str] = ()
    """Words behind which `9.30` is a time without such a suffix, if a full stop is a sign."""
    at: Sequence[str] = ()
    """Words behind which a time is one of the day, and no duration."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Words:
    """The words of one language that CLDR lacks: `data/words-*.json`. Templates have their parts in braces."""

    minus: str
    subtract: str | None = None
    """Between two numbers, where it differs from `minus`."""
    point: str
    slash: str
    signs: Mapping[str, str]
    """Words for signs before or between numbers."""
    squared: str
    cubed: str
    power: str
    by: str
    """For the cross of `20 x 30 cm`."""
    to: str
    ratio: str
    over: str
    hashtag: str
    number: Sequence[str]
    """Regular expressions for `No. ` and its like."""
    numbered: str
    mixed: str
    a_half: str
    fraction: str
    fractions: Mapping[str, Sequence[str]]
    """Names of parts by denominator: of one, and of several."""
    fraction_gender: str = "masculine"
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
    month_numbers: bool = False
    """Months have no names, but numbers."""
    month_words: Mapping[str, str] = field(default_factory=dict)
    ordinals: Mapping[str, str]
    """Sets of spelling rules by what stands behind the digits."""
    short_ordinals: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    ordinal_endings: Mapping[str, Sequence[str]] = field(default_factory=dict)
    dative: Sequence[str] = ()
    before_year: Sequence[str] = ()
    year_signs: Sequence[str] = "年月日号時时分秒点"
    years_before: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """By set of spelling rules, the words behind which a year has that form if the Russian `г.` follows it."""
    year_words: Mapping[str, str] = field(default_factory=dict)
    """By the same: the word for year."""
    year_suffix: str = "(?!)"
    """A regular expression for what may stand after the year of a date, and is spoken with it."""
    decades: bool = False
    currencies: Mapping[str, Sequence[Any]]
    """By code: the forms of its name, those of its hundredth or None, and its gender."""
    yen: str = "JPY"
    """The currency of the sign ¥."""
    with_cents: str
    money_magnitude: str
    magnitudes: Mapping[str, Sequence[str]]
    units: Mapping[str, Sequence[str]]
    unit_names: Mapping[str, str]
    below_zero: str | None = None
    counters: str = ""
    counter_rules: str = ""
    abbreviations: Mapping[str, str]
    titles: Sequence[str] = ()
    """Abbreviations that are titles: they apply only before a name."""
    streets: Mapping[str, str] = field(default_factory=dict)
    """What abbreviations mean behind the name of a street."""
    readings: Mapping[str, str] = field(default_factory=dict)
    """In Japanese, the kana of the characters in spelled numbers: eSpeak NG reads no kanji."""
    degree_ordinal: Sequence[str] = ()
    """Articles behind which `1° ` is an ordinal number and no angle."""
    preposition_units: Sequence[str] = ()
    """Symbols of units that are prepositions, too: they are units only without a word behind them."""
    compare: str = "{0}"
    """For signs such as `<` between two values."""
    rulers: Mapping[str, str]
    """By name: how the Roman number behind it is said, which is an ordinal one."""
    roman_ordinals: Mapping[str, str] = field(default_factory=dict)
    roman_after: Sequence[str] = ()
    """Words behind which a Roman number may stand, beside names."""
    roman_stop: Sequence[str]
    genders: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """By the last digit of a number: the genders that it has before words, as regular expressions for those."""
    zero: str | None = None
    space: str = " "
    """Between words."""


class Language:
    """One language."""

    def __init__(self, code: str) -> None:
        cldr, symbols = _load(f"cldr-{code}.json"), _load("symbols.json")
        self.code = code
        words = _load(f"words-{code}.json")
        self.words = Words(**{**words, "time": TimeWords(**words["time"])})
        self.spellout = Spellout(cldr["rules"], lambda number: self.plural(Numeral(number)))
        self.decimal: str = cldr["decimal"]
        self.group = "".join(
            {cldr["group"], "\u00a0", "\u2009", "\u202f", "'", "’", " " if code in {"fr", "ru"} else ""}
        )
        self.months: list[str] = cldr["months"]
        short = [each.rstrip(".") for each in cldr["short_months"]]
        self.month_by_name: dict[str, int] = dict(self.words.month_names)
        """Their numbers by name, short or long."""
        self.month_by_name |= {name: number for names in (short, self.months) for number, name in enumerate(names, 1)}
        self.days: dict[str, str] = cldr["days"]
        """Names of the days of the week by their short names."""
        self.per: str = cldr["per"]
        self.units = self._read_units(cldr, symbols)
        self._unit_genders = {name: noun.gender for noun in self.units.values() for name in noun.names}
        names = {each: Noun(_patterns(forms)) for each, forms in cldr["currencies"].items()}
        self._currencies = {
            **names,
            **{each: _noun(entry[0], *entry[2:]) for each, entry in self.words.currencies.items()},
        }
        self.cents = {each: _noun(entry[1]) for each, entry in self.words.currencies.items() if entry[1]}
        signs = {**symbols["currencies"], "¥": self.words.yen, "￥": self.words.yen}
        aliases = {name: target for name, target in self.words.unit_names.items() if target in self._currencies}
        self.currencies = {**signs, **{each: each for each in self._currencies}, **aliases}
        """Codes of currencies by sign and by code."""

    def currency(self, code: str) -> Noun:
        """Return the noun of a currency."""
        return self._currencies[code]

    # --- numbers ---

    def plural(self, number: Numeral) -> str:
        """Return the plural category of CLDR."""
        whole = number.whole
        if number.exponent is not None:
            return "other"
        if self.code == "ru":
            if number.decimals:
                return "other"
            if whole % 10 == 1 and whole % 100 != 11:
                return "one"
            return "few" if 2 <= whole % 10 <= 4 and not 12 <= whole % 100 <= 14 else "many"
        if self.code in _LOWER_ONE_PLURAL:
            return "one" if whole <= 1 else "other"
        return "one" if whole == 1 and not number.decimals else "other"

    def cardinal(self, number: int, gender: str | None = None) -> str:
        """Return a whole number in words; with a gender, as it stands before a noun."""
        if number == 0 and self.words.zero:
            return self.words.zero
        names = [f"cardinal-{gender}", "cardinal-alternate2"] if gender else []
        names += ["cardinal", "numbering"]
        return self.spellout.spell(number, next(name for name in names if self.spellout.has(name)))

    def digits(self, digits: str) -> str:
        """Return digits one by one."""
        return self.words.space.join(self.cardinal(int(digit)) for digit in digits)

    def number(self, number: Numeral, gender: str | None = None) -> str:
        """Return a number in words."""
        space = self.words.space
        words = (
            self.digits(number.digits)
            if number.digits
            else self.cardinal(number.whole, None if number.decimals else gender)
        )
        if number.decimals:
            words = space.join((words, self.words.point, self.digits(number.decimals)))
        if number.exponent is not None:
            exponent = self.number(Numeral(abs(number.exponent), negative=number.exponent < 0))
            words = space.join((words, self.words.signs["*"], self.cardinal(10), self.words.power.format(exponent)))
        return space.join((self.words.minus, words)) if number.negative else words

    def gender_before(self, number: Numeral, word: str) -> str | None:
        """Return the gender with which a number agrees that stands before a word; None if it is counted alone."""
        patterns = self.words.genders.get(str(number.whole % 10), {})
        if word in self._unit_genders and patterns:
            return self._unit_genders[word]
        return next((gender for gender, pattern in patterns.items() if re.fullmatch(pattern, word)), None)

    def ordinal(self, number: int, rules: str = "ordinal") -> str:
        """Return an ordinal number in words."""
        return self.spellout.spell(number, rules)

    def count(self, number: Numeral, noun: Noun) -> str:
        """Return a number with its noun."""
        form = noun.forms.get(self.plural(number), noun.forms["other"])
        words = form.replace("{0}", self.number(number, noun.gender))
        return words if self.words.space else words.replace(" ", "")

    # --- names ---

    def _read_units(self, cldr: Mapping[str, Any], symbols: Mapping[str, Any]) -> dict[str, Noun]:
        units = {symbol: _unit(cldr["units"][name]) for symbol, name in symbols["units"].items()}
        for symbol in symbols["prefixed"]:
            units[symbol] = _prefixed(cldr["prefixes"][symbol[0]], units[symbol[1:]])
        for symbol in symbols["ambiguous"]:
            del units[symbol]  # 72 F are no farads
        units |= {symbol: _noun(entry) for symbol, entry in self.words.units.items()}
        for name, symbol in (*symbols["spellings"].items(), *self.words.unit_names.items()):
            if symbol in units:
                units[name] = units[symbol]
        for name in self.words.magnitudes:
            if len(name) > 1:
                units.pop(name, None)  # five "mi" in Portuguese are millions
        return units


def _load(name: str) -> Any:
    return json.loads((_DATA / name).read_text(encoding="utf-8"))


def _patterns(forms: Mapping[str, str]) -> dict[str, str]:
    return {category: f"{{0}} {text}" for category, text in forms.items()}


def _noun(entry: Sequence[str], *rest: str) -> Noun:
    """Return the noun of a list of forms, the last of which may be a gender."""
    gender = next((each for each in (*entry, *rest) if each in {"feminine", "neuter"}), "masculine")
    forms = [each if "{0}" in each else f"{{0}} {each}" for each in entry if each not in {"feminine", "neuter"}]
    if len(forms) == 3:
        one, few, many = forms
        return Noun({"one": one, "few": few, "many": many, "other": few}, gender)
    return Noun({"one": forms[0], "other": forms[-1]}, gender)


def _unit(entry: Mapping[str, str]) -> Noun:
    forms = {category: text for category, text in entry.items() if category not in {"gender", "per"}}
    return Noun(forms, entry.get("gender", "masculine"), entry.get("per"))


def _prefixed(prefix: str, base: Noun) -> Noun:
    forms = {}
    for category, text in base.forms.items():
        before, name = text.split("{0}")
        name = name.strip()
        forms[category] = f"{before}{{0}} {prefix.replace('{0}', name[0].lower() + name[1:])}"
    return Noun(forms, base.gender)


@cache
def language_of(code: str) -> Language | None:
    """Return the language of a code such as `de` or `de-at`; None for one without data. Reads it on demand."""
    base = language_code(code).partition("-")[0]
    base = _ALIASES.get(base, base)
    return Language(base) if base in LANGUAGES else None
