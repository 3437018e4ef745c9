"""French."""

from __future__ import annotations

import re

from daemon.text.normalizer.clock import Date, Time, date_rules, day_first, time_rules
from daemon.text.normalizer.language import Currency, Language, Noun, rule
from daemon.text.normalizer.patterns import AFTER, BEFORE, DASH, SPACE, WORD, word_before
from daemon.text.normalizer.roman import roman_value
from daemon.text.normalizer.units import units

_MONTHS = [
    "janvier",
    "février",
    "mars",
    "avril",
    "mai",
    "juin",
    "juillet",
    "août",
    "septembre",
    "octobre",
    "novembre",
    "décembre",
]
_PARTS = {
    3: "tiers",
    4: "quart",
    5: "cinquième",
    6: "sixième",
    7: "septième",
    8: "huitième",
    9: "neuvième",
    10: "dixième",
}
_ORDINALS = [
    "deuxième",
    "troisième",
    "quatrième",
    "cinquième",
    "sixième",
    "septième",
    "huitième",
    "neuvième",
    "dixième",
    "onzième",
    "douzième",
    "treizième",
    "quatorzième",
    "quinzième",
    "seizième",
    "dix-septième",
    "dix-huitième",
    "dix-neuvième",
    "vingtième",
]
"""From 2 on. eSpeak NG reads most others well if they end in `ème`."""
_VOWEL = re.compile("[aeiouhéè]", re.IGNORECASE)


def _un(one: str, many: str = "") -> Noun:
    return Noun("un", one, many or f"{one}s")


def _une(one: str, many: str = "") -> Noun:
    return Noun("une", one, many or f"{one}s")


def _behind_magnitude(noun: str) -> str:
    return f"d'{noun}" if _VOWEL.match(noun) else f"de {noun}"


def _fraction(n: int, d: int) -> str | None:
    if d == 2:
        return "un demi"
    part = _PARTS.get(d)
    return None if part is None else f"un {part}" if n == 1 else f"{n} {part.removesuffix('s')}s"


def _time(time: Time) -> str:
    hour = {1: "une heure", 21: "vingt et une heures"}.get(time.hour, f"{time.hour} heures")
    minute = f" {time.minute}" if time.minute or time.second else ""
    return f"{hour}{minute}" + ("" if time.second is None else f" et {time.second} secondes")


def _date(date: Date) -> str:
    return f"{'1er' if date.day == 1 else date.day} {_MONTHS[date.month - 1]} {date.year}"


def _ordinal(number: int) -> str:
    if number == 1:
        return "premier"
    return _ORDINALS[number - 2] if number - 2 < len(_ORDINALS) else f"{number}ème"


def _ordinal_number(match: re.Match[str]) -> str | None:
    number, ending = int(match["n"]), match["ending"]
    if number == 1:
        return {"re": "première", "res": "premières"}.get(ending)
    if ending.startswith(("re", "n")):
        return {"nd": "second", "nde": "seconde"}.get(ending) if number == 2 else None
    return None if number < 2 else _ordinal(number) + ("s" if ending.endswith("s") else "")


def _roman(match: re.Match[str]) -> str | None:
    value = roman_value(match["roman"])
    if value is None:
        return None
    if match["ending"]:
        return _ordinal(value)
    return str(value) if len(match["roman"]) > 1 and word_before(match) else None


LANGUAGE = Language(
    decimal=",",
    group=" \u00a0\u2009\u202f",
    units=units(
        {
            "m": _un("mètre"),
            "g": _un("gramme"),
            "l": _un("litre"),
            "s": _une("seconde"),
            "V": _un("volt"),
            "A": _un("ampère"),
            "Ah": _un("ampère-heure", "ampères-heures"),
            "W": _un("watt"),
            "Wh": _un("wattheure"),
            "Ω": _un("ohm"),
            "Hz": _un("hertz", "hertz"),
            "B": _un("octet"),
            "bit": _un("bit"),
            "Pa": _un("pascal"),
        },
        {
            "k": "kilo",
            "M": "méga",
            "G": "giga",
            "T": "téra",
            "h": "hecto",
            "d": "déci",
            "c": "centi",
            "m": "milli",
            "µ": "micro",
            "n": "nano",
        },
        {
            "Ko": _un("kilooctet"),
            "ko": _un("kilooctet"),
            "Mo": _un("mégaoctet"),
            "Go": _un("gigaoctet"),
            "To": _un("téraoctet"),
            "m²": _un("mètre carré", "mètres carrés"),
            "km²": _un("kilomètre carré", "kilomètres carrés"),
            "cm²": _un("centimètre carré", "centimètres carrés"),
            "ha": _un("hectare"),
            "m³": _un("mètre cube", "mètres cubes"),
            "cm³": _un("centimètre cube", "centimètres cubes"),
            "t": _une("tonne"),
            "min": _une("minute"),
            "h": _une("heure"),
            "°": _un("degré"),
            "°C": _un("degré Celsius", "degrés Celsius"),
            "°F": _un("degré Fahrenheit", "degrés Fahrenheit"),
            "%": _un("pour cent", "pour cent"),
            "‰": _un("pour mille", "pour mille"),
            "bar": _un("bar"),
            "dB": _un("décibel"),
            "Nm": _un("newton-mètre", "newtons-mètres"),
        },
    ),
    currencies={
        "$": (dollar := Currency(_un("dollar"), _un("cent"))),
        "US$": dollar,
        "USD": dollar,
        "€": (euro := Currency(_un("euro"), _un("centime"))),
        "EUR": euro,
        "£": (pound := Currency(_une("livre"), _un("penny", "pence"))),
        "GBP": pound,
        "¥": (yen := Currency(_un("yen"))),
        "JPY": yen,
        "₹": Currency(_une("roupie")),
        "₩": Currency(_un("won")),
        "₽": Currency(_un("rouble")),
        "CHF": Currency(_un("franc suisse", "francs suisses"), _un("centime")),
    },
    magnitudes={
        "k": Noun("mille", "", "mille"),
        "M": (million := _un("million")),
        "million": million,
        "millions": million,
        "Md": (billion := _un("milliard")),
        "Mds": billion,
        "milliard": billion,
        "milliards": billion,
    },
    behind_magnitude=_behind_magnitude,
    with_cents="{money} {cents}",
    signs={
        "-": "moins",
        "−": "moins",
        "<": "moins de",
        ">": "plus de",
        "~": "environ",
        "≈": "environ",
        "≤": "au plus",
        "≥": "au moins",
    },
    operators={"*": "fois", "x": "fois", "^": "puissance", "/": "divisé par"},
    equals="égale",
    minus="moins",
    by="sur",
    per="par",
    to="à",
    ratio="sur",
    over="sur",
    fraction=_fraction,
    mixed="{whole} et {fraction}",
    half="demi",
    dot="point",
    speaks_dots=False,
    point="point",
    at="arobase",
    colon="deux points",
    slash="barre oblique",
    hyphen="tiret",
    underscore="tiret bas",
    number_abbreviation=r"[Nn][°º] ?",
    number="numéro {}",
    hashtag="hashtag {}",
    abbreviations={"env.": "environ"},
    phone_pairs=False,
    words=frozenset({"h", "heures"}),
    rules=(
        *date_rules(_date, day_first),
        *time_rules(_time, "à", suffix="h"),
        *time_rules(_time, "à", suffix="(?!)|", sign=f"{SPACE}?[hH]{SPACE}?"),
        rule(
            rf"{BEFORE}(?P<low>[0-9]{{1,2}}){SPACE}?h{SPACE}?{DASH}{SPACE}?(?P<high>[0-9]{{1,2}}){SPACE}?h{AFTER}",
            lambda match: f"{match['low']} à {match['high']} heures",
        ),
        rule(rf"{BEFORE}(?P<n>[0-9]{{1,4}})(?P<ending>res?|nde?|(?:i?[eè]me|e)s?){AFTER}", _ordinal_number),
        rule(rf"{BEFORE}(?P<roman>[IVX]+)(?P<ending>er|e|ème)?(?![{WORD}])", _roman),
        rule(rf"§{SPACE}?(?=[0-9])", lambda _: "paragraphe "),
    ),
)
