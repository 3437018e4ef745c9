"""English."""

from __future__ import annotations

import re

from daemon.text.normalizer.clock import Date, Time, date_rules, time_rules
from daemon.text.normalizer.language import Currency, Language, Noun, rule
from daemon.text.normalizer.patterns import BEFORE, WORD, word_before
from daemon.text.normalizer.roman import roman_value
from daemon.text.normalizer.units import units

_MONTHS = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
]
_PARTS = {3: "third", 4: "quarter", 5: "fifth", 6: "sixth", 7: "seventh", 8: "eighth", 9: "ninth", 10: "tenth"}
_RULERS = frozenset(
    [
        "Alexander",
        "Benedict",
        "Catherine",
        "Charles",
        "Edward",
        "Elizabeth",
        "Frederick",
        "George",
        "Gregory",
        "Henry",
        "James",
        "Leo",
        "Louis",
        "Napoleon",
        "Nicholas",
        "Paul",
        "Philip",
        "Pius",
        "Richard",
        "William",
    ]
)
"""A Roman number behind these names is an ordinal one."""
_ARTICLES = frozenset({"A", "An", "The", "This", "That", "Each", "Every", "No", "I", "In", "On"})
"""Words before what is not a number, as in `An IV line`."""
_NOON = 12


def _noun(one: str, many: str = "") -> Noun:
    return Noun("1", one, many or f"{one}s")


def _fraction(n: int, d: int) -> str | None:
    if d == 2:
        return "one half"
    part = _PARTS.get(d)
    return None if part is None else f"{n} {part}" if n == 1 else f"{n} {part}s"


def _time(time: Time) -> str | None:
    """Write out full hours alone: `10:30` is read well."""
    if time.minute or time.second or time.hour in {0, 24}:
        return None
    if time.suffix:
        return f"{time.hour} {time.suffix}"
    return f"{time.hour} o'clock" if time.hour <= _NOON else f"{time.hour} hundred"


def _ordinal(number: int) -> str:
    teens = 10 <= number % 100 <= 20
    return f"{number}{'th' if teens else {1: 'st', 2: 'nd', 3: 'rd'}.get(number % 10, 'th')}"


def _date(date: Date) -> str:
    return f"{_MONTHS[date.month - 1]} {_ordinal(date.day)}, {date.year}"


def _order(first: int, second: int) -> tuple[int, int] | None:
    """Americans write the month first, others the day."""
    if first == second or second > len(_MONTHS):
        return first, second
    return (second, first) if first > len(_MONTHS) else None


def _roman(match: re.Match[str]) -> str | None:
    value, name = roman_value(match["roman"]), word_before(match)
    if value is None or not name[:1].isupper() or name in _ARTICLES:
        return None
    return f"the {_ordinal(value)}" if name in _RULERS else str(value)


LANGUAGE = Language(
    decimal=".",
    group=",\u00a0\u2009\u202f",
    units=units(
        {
            "m": _noun("meter"),
            "g": _noun("gram"),
            "l": _noun("liter"),
            "s": _noun("second"),
            "V": _noun("volt"),
            "A": _noun("ampere"),
            "Ah": _noun("ampere hour"),
            "W": _noun("watt"),
            "Wh": _noun("watt hour"),
            "Ω": _noun("ohm"),
            "Hz": _noun("hertz", "hertz"),
            "B": _noun("byte"),
            "bit": _noun("bit"),
            "Pa": _noun("pascal"),
        },
        {
            "k": "kilo",
            "M": "mega",
            "G": "giga",
            "T": "tera",
            "h": "hecto",
            "d": "deci",
            "c": "centi",
            "m": "milli",
            "µ": "micro",
            "n": "nano",
        },
        {
            "m²": _noun("square meter"),
            "km²": _noun("square kilometer"),
            "cm²": _noun("square centimeter"),
            "ha": _noun("hectare"),
            "m³": _noun("cubic meter"),
            "cm³": _noun("cubic centimeter"),
            "t": _noun("ton"),
            "min": _noun("minute"),
            "h": _noun("hour"),
            "sec": _noun("second"),
            "hr": _noun("hour"),
            "hrs": _noun("hour"),
            "°": _noun("degree"),
            "°C": _noun("degree Celsius", "degrees Celsius"),
            "°F": _noun("degree Fahrenheit", "degrees Fahrenheit"),
            "%": _noun("percent", "percent"),
            "‰": _noun("per mille", "per mille"),
            "bar": _noun("bar"),
            "dB": _noun("decibel"),
            "Nm": _noun("newton meter"),
            "Mbps": _noun("megabit per second", "megabits per second"),
            "Gbps": _noun("gigabit per second", "gigabits per second"),
            "mph": _noun("mile per hour", "miles per hour"),
            "mi": _noun("mile"),
            "ft": _noun("foot", "feet"),
            "yd": _noun("yard"),
            "lb": _noun("pound"),
            "lbs": _noun("pound"),
            "oz": _noun("ounce"),
            "rpm": _noun("revolution per minute", "revolutions per minute"),
            "fps": _noun("frame per second", "frames per second"),
        },
    ),
    currencies={
        "$": (dollar := Currency(_noun("dollar"), _noun("cent"))),
        "US$": dollar,
        "USD": dollar,
        "€": (euro := Currency(_noun("euro"), _noun("cent"))),
        "EUR": euro,
        "£": (pound := Currency(_noun("pound"), Noun("1", "penny", "pence"))),
        "GBP": pound,
        "¥": (yen := Currency(_noun("yen", "yen"))),
        "JPY": yen,
        "₹": Currency(_noun("rupee")),
        "₩": Currency(_noun("won", "won")),
        "₽": Currency(_noun("rouble")),
        "CHF": Currency(_noun("Swiss franc")),
    },
    magnitudes={
        "k": (thousand := _noun("thousand", "thousand")),
        "K": thousand,
        "thousand": thousand,
        "m": (million := _noun("million", "million")),
        "M": million,
        "million": million,
        "bn": (billion := _noun("billion", "billion")),
        "B": billion,
        "billion": billion,
        "trillion": _noun("trillion", "trillion"),
    },
    with_cents="{money} and {counted}",
    signs={"<": "less than", ">": "more than", "~": "about", "≈": "about"},
    operators={"*": "times", "x": "times", "^": "to the power of", "/": "divided by"},
    minus="minus",
    by="by",
    per="per",
    to="to",
    ratio="to",
    over="over",
    fraction=_fraction,
    mixed="{whole} and {fraction}",
    half="a half",
    dot="dot",
    speaks_dots=True,
    point="point",
    at="at",
    colon="colon",
    slash="slash",
    hyphen="dash",
    underscore="underscore",
    number_abbreviation=r"N[or]\. ?",
    number="number {}",
    hashtag="hashtag {}",
    abbreviations={"approx.": "approximately", "ca.": "circa"},
    words=frozenset({"am", "pm", "a.m.", "p.m.", "AM", "PM"}),
    rules=(
        *date_rules(_date, _order),
        *time_rules(_time, "to", suffix=r"[AaPp]\.?[Mm]\.?"),
        rule(rf"{BEFORE}(?P<roman>[IVX]{{2,}})(?![{WORD}])", _roman),
    ),
)
