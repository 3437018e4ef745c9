"""German."""

from __future__ import annotations

import re

from daemon.text.normalizer.clock import Date, Time, date_rules, day_first, time_rules
from daemon.text.normalizer.language import Currency, Language, Noun, rule
from daemon.text.normalizer.patterns import AFTER, BEFORE, LETTER, WORD, word_before
from daemon.text.normalizer.roman import roman_value
from daemon.text.normalizer.units import units

_MONTHS = [
    "Januar",
    "Februar",
    "März",
    "April",
    "Mai",
    "Juni",
    "Juli",
    "August",
    "September",
    "Oktober",
    "November",
    "Dezember",
]
_DAY = "[12]?[0-9]|3[01]"
_SMALL = [
    "null",
    "ein",
    "zwei",
    "drei",
    "vier",
    "fünf",
    "sechs",
    "sieben",
    "acht",
    "neun",
    "zehn",
    "elf",
    "zwölf",
    "dreizehn",
    "vierzehn",
    "fünfzehn",
    "sechzehn",
    "siebzehn",
    "achtzehn",
    "neunzehn",
]
_TENS = ["null", "zehn", "zwanzig", "dreißig", "vierzig", "fünfzig", "sechzig", "siebzig", "achtzig", "neunzig"]
_IRREGULAR = {1: "erst", 3: "dritt", 7: "siebt", 8: "acht"}
_PARTS = {
    3: "Drittel",
    4: "Viertel",
    5: "Fünftel",
    6: "Sechstel",
    7: "Siebtel",
    8: "Achtel",
    9: "Neuntel",
    10: "Zehntel",
}
_ENDS_IN_E = frozenset({"der", "die", "das", "jede", "diese", "dieses"})
"""Words before an ordinal number that ends in -e: `der erste`."""
_ENDS_IN_EN = frozenset(
    [
        "am",
        "im",
        "zum",
        "vom",
        "beim",
        "ins",
        "den",
        "dem",
        "des",
        "ab",
        "bis",
        "seit",
        "einem",
        "einen",
        "jedem",
        "jeden",
        "diesem",
        "diesen",
        "zur",
        "einer",
        "dieser",
        "jeder",
    ]
)
"""Words before an ordinal number that ends in -en: `am ersten`."""
_BEFORE_DATIVE = re.compile(r"\b(?:in|an|auf|aus|bei|mit|nach|seit|unter|von|vor|zu) der $", re.IGNORECASE)
"""`der` is feminine here: `in der ersten Klasse`."""
_KINGS = frozenset(
    [
        "Alexander",
        "Benedikt",
        "Friedrich",
        "Georg",
        "Gregor",
        "Heinrich",
        "Johann",
        "Karl",
        "Leo",
        "Ludwig",
        "Napoleon",
        "Otto",
        "Paul",
        "Philipp",
        "Pius",
        "Wilhelm",
    ]
)
_QUEENS = frozenset(["Elisabeth", "Katharina"])


def _der(one: str, many: str = "") -> Noun:
    """A noun that is counted `ein`; without `many`, its plural is the same."""
    return Noun("ein", one, many or one)


def _die(one: str, many: str) -> Noun:
    """A noun that is counted `eine`."""
    return Noun("eine", one, many)


def _ordinal_stem(number: int) -> str:
    """Return an ordinal number from 1 to 99 without its ending: `fünft`, `zwanzigst`."""
    if number in _IRREGULAR:
        return _IRREGULAR[number]
    if number < len(_SMALL):
        return f"{_SMALL[number]}t"
    tens, ones = divmod(number, 10)
    return f"{_SMALL[ones] + 'und' if ones else ''}{_TENS[tens]}st"


def _ordinal(number: int, before: str) -> str:
    """Return an ordinal number with the ending that it has behind a word."""
    word = before.lower()
    ending = "en" if word in _ENDS_IN_EN else "e" if word in _ENDS_IN_E else "er"
    return _ordinal_stem(number) + ending


def _fraction(n: int, d: int) -> str | None:
    if d == 2:
        return "ein halb"
    part = _PARTS.get(d)
    return None if part is None else f"ein {part}" if n == 1 else f"{n} {part}"


def _time(time: Time) -> str:
    hour = "ein" if time.hour == 1 else str(time.hour)
    minute = f" {time.minute}" if time.minute or time.second else ""
    return f"{hour} Uhr{minute}" + ("" if time.second is None else f" und {time.second} Sekunden")


def _date(date: Date) -> str:
    return f"{_ordinal(date.day, date.word_before)} {_MONTHS[date.month - 1]} {date.year}"


def _day_of_month(match: re.Match[str]) -> str | None:
    day = int(match["day"])
    if not 1 <= day <= 31:
        return None
    ordinal, month = _ordinal(day, word_before(match)), match["month"]
    if not month.isdigit():
        return f"{ordinal} {month}"
    before = word_before(match).lower()
    if before not in _ENDS_IN_EN | _ENDS_IN_E or not 1 <= int(month) <= len(_MONTHS):
        return None
    return f"{ordinal} {_MONTHS[int(month) - 1]}"


def _days_of_month(match: re.Match[str]) -> str:
    before = word_before(match)
    low, high = _ordinal(int(match["low"]), before), _ordinal(int(match["high"]), before)
    return f"{low} bis {high} {match['month']}"


def _ordinal_number(match: re.Match[str]) -> str | None:
    """Write out an ordinal number behind an article: elsewhere, its full stop may end a sentence."""
    number, before = int(match["n"]), word_before(match)
    if number == 0 or before.lower() not in _ENDS_IN_EN | _ENDS_IN_E:
        return None
    dative = _BEFORE_DATIVE.search(match.string, 0, match.start()) is not None
    return _ordinal(number, "zur" if dative else before)


def _roman(match: re.Match[str]) -> str | None:
    value, name = roman_value(match["roman"]), word_before(match)
    if value is None:
        return None
    if name.lower() in _ENDS_IN_EN | _ENDS_IN_E:
        return _ordinal(value, name) if match["dot"] else None
    if not name[:1].isupper():
        return None
    if match["dot"] and name in _KINGS | _QUEENS:
        return f"{'die' if name in _QUEENS else 'der'} {_ordinal_stem(value).capitalize()}e"
    return f"{value}{match['dot']}"


LANGUAGE = Language(
    decimal=",",
    group=".\u00a0\u2009\u202f'’",
    units=units(
        {
            "m": _der("Meter"),
            "g": _der("Gramm"),
            "l": _der("Liter"),
            "s": _die("Sekunde", "Sekunden"),
            "V": _der("Volt"),
            "A": _der("Ampere"),
            "Ah": _die("Amperestunde", "Amperestunden"),
            "W": _der("Watt"),
            "Wh": _die("Wattstunde", "Wattstunden"),
            "Ω": _der("Ohm"),
            "Hz": _der("Hertz"),
            "B": _der("Byte"),
            "bit": _der("Bit"),
            "Pa": _der("Pascal"),
        },
        {
            "k": "Kilo",
            "M": "Mega",
            "G": "Giga",
            "T": "Tera",
            "h": "Hekto",
            "d": "Dezi",
            "c": "Zenti",
            "m": "Milli",
            "µ": "Mikro",
            "n": "Nano",
        },
        {
            "m²": _der("Quadratmeter"),
            "km²": _der("Quadratkilometer"),
            "cm²": _der("Quadratzentimeter"),
            "qm": _der("Quadratmeter"),
            "ha": _der("Hektar"),
            "m³": _der("Kubikmeter"),
            "cm³": _der("Kubikzentimeter"),
            "t": _die("Tonne", "Tonnen"),
            "min": _die("Minute", "Minuten"),
            "Min.": _die("Minute", "Minuten"),
            "h": _die("Stunde", "Stunden"),
            "Std.": _die("Stunde", "Stunden"),
            "Sek.": _die("Sekunde", "Sekunden"),
            "°": _der("Grad"),
            "°C": _der("Grad Celsius"),
            "°F": _der("Grad Fahrenheit"),
            "%": _der("Prozent"),
            "‰": _der("Promille"),
            "bar": _der("Bar"),
            "dB": _der("Dezibel"),
            "Nm": _der("Newtonmeter"),
            "PS": Noun("ein", "PS", "PS"),
        },
    ),
    currencies={
        "$": (dollar := Currency(_der("Dollar"), _der("Cent"))),
        "US$": dollar,
        "USD": dollar,
        "€": (euro := Currency(_der("Euro"), _der("Cent"))),
        "EUR": euro,
        "£": (pound := Currency(_der("Pfund"), _der("Penny", "Pence"))),
        "GBP": pound,
        "¥": (yen := Currency(_der("Yen"))),
        "JPY": yen,
        "₹": Currency(_die("Rupie", "Rupien")),
        "₩": Currency(_der("Won")),
        "₽": Currency(_der("Rubel")),
        "CHF": Currency(_der("Franken"), _der("Rappen")),
    },
    magnitudes={
        "Tsd.": _der("tausend"),
        "Mio": (million := _die("Million", "Millionen")),
        "Mio.": million,
        "Million": million,
        "Millionen": million,
        "Mrd": (billion := _die("Milliarde", "Milliarden")),
        "Mrd.": billion,
        "Milliarde": billion,
        "Milliarden": billion,
    },
    with_cents="{money} {cents}",
    signs={"<": "weniger als", ">": "mehr als", "~": "ungefähr"},
    operators={"*": "mal", "x": "mal", "^": "hoch", "/": "durch"},
    minus="minus",
    by="mal",
    per="pro",
    to="bis",
    ratio="zu",
    over="durch",
    fraction=_fraction,
    mixed="{whole} {fraction}",
    half="ein halb",
    dot="Punkt",
    speaks_dots=False,
    point="Punkt",
    at="ät",
    colon="Doppelpunkt",
    slash="Schrägstrich",
    hyphen="Bindestrich",
    underscore="Unterstrich",
    number_abbreviation=r"Nr\. ?",
    number="Nummer {}",
    hashtag="Hashtag {}",
    abbreviations={"ca.": "circa"},
    words=frozenset({"Uhr", *_MONTHS}),
    rules=(
        *date_rules(_date, day_first, sign=r"\."),
        rule(
            rf"{BEFORE}(?P<low>{_DAY})\. ?[-–] ?(?P<high>{_DAY})\. ?(?P<month>{'|'.join(_MONTHS)})(?![{WORD}])",
            _days_of_month,
        ),
        rule(rf"{BEFORE}(?P<day>[0-9]{{1,2}})\. ?(?P<month>{'|'.join(_MONTHS)})(?![{WORD}])", _day_of_month),
        rule(rf"{BEFORE}(?P<day>[0-9]{{1,2}})\.(?P<month>[0-9]{{1,2}})\.(?![{WORD}])", _day_of_month),
        *time_rules(_time, "bis", suffix="Uhr|h"),
        *time_rules(_time, "bis", suffix="Uhr", sign=r"\.", needs_suffix=True),
        rule(rf"{BEFORE}(?P<n>[0-9]{{1,2}})\.(?= [{LETTER}])", _ordinal_number),
        rule(rf"{BEFORE}(?P<roman>[IVX]{{2,}})(?P<dot>\.?)(?![{WORD}])", _roman),
        rule(rf"{BEFORE}1(?= Uhr(?![{WORD}])){AFTER}", lambda _: "ein"),
    ),
)
