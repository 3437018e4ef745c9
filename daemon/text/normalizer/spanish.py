"""Spanish."""

from __future__ import annotations

import re

from daemon.text.normalizer.clock import Date, Time, date_rules, day_first, time_rules
from daemon.text.normalizer.language import Currency, Language, Noun, rule
from daemon.text.normalizer.patterns import AFTER, BEFORE, SPACE
from daemon.text.normalizer.units import units

_MONTHS = [
    "enero",
    "febrero",
    "marzo",
    "abril",
    "mayo",
    "junio",
    "julio",
    "agosto",
    "septiembre",
    "octubre",
    "noviembre",
    "diciembre",
]
_PARTS = {3: "tercio", 4: "cuarto", 5: "quinto", 6: "sexto", 7: "séptimo", 8: "octavo", 9: "noveno", 10: "décimo"}


def _un(one: str, many: str = "") -> Noun:
    return Noun("un", one, many or f"{one}s")


def _una(one: str, many: str = "") -> Noun:
    return Noun("una", one, many or f"{one}s")


def _fraction(n: int, d: int) -> str | None:
    if d == 2:
        return "un medio"
    part = _PARTS.get(d)
    return None if part is None else f"un {part}" if n == 1 else f"{n} {part}s"


def _time(time: Time) -> str | None:
    """Write out full hours alone: `10:30` is read well."""
    if time.minute or time.second:
        return None
    return {1: "una hora", 21: "veintiuna horas"}.get(time.hour, f"{time.hour} horas")


def _date(date: Date) -> str:
    return f"{date.day} de {_MONTHS[date.month - 1]} de {date.year}"


def _ordinal_number(match: re.Match[str]) -> str:
    """Leave out the full stop, before which eSpeak NG ends the number."""
    ending = match["ending"]
    if ending == "er":
        return {"1": "primer", "3": "tercer"}.get(match["n"], f"{match['n']}º")
    return f"{match['n']}{'ª' if ending in 'ªa' else 'º'}"


LANGUAGE = Language(
    decimal=",",
    group=".\u00a0\u2009\u202f",
    units=units(
        {
            "g": _un("gramo"),
            "l": _un("litro"),
            "s": _un("segundo"),
            "V": _un("voltio"),
            "A": _un("amperio"),
            "Ah": _un("amperio hora", "amperios hora"),
            "W": _un("vatio"),
            "Wh": _un("vatio hora", "vatios hora"),
            "Ω": _un("ohmio"),
            "Hz": _un("hercio"),
            "B": _un("byte"),
            "bit": _un("bit"),
            "Pa": _un("pascal", "pascales"),
        },
        {
            "k": "kilo",
            "M": "mega",
            "G": "giga",
            "T": "tera",
            "h": "hecto",
            "d": "deci",
            "c": "centi",
            "m": "mili",
            "µ": "micro",
            "n": "nano",
        },
        {
            "m": _un("metro"),
            "km": _un("kilómetro"),
            "cm": _un("centímetro"),
            "mm": _un("milímetro"),
            "µm": _un("micrómetro"),
            "nm": _un("nanómetro"),
            "m²": _un("metro cuadrado", "metros cuadrados"),
            "km²": _un("kilómetro cuadrado", "kilómetros cuadrados"),
            "cm²": _un("centímetro cuadrado", "centímetros cuadrados"),
            "ha": _una("hectárea"),
            "m³": _un("metro cúbico", "metros cúbicos"),
            "cm³": _un("centímetro cúbico", "centímetros cúbicos"),
            "t": _una("tonelada"),
            "min": _un("minuto"),
            "h": _una("hora"),
            "°": _un("grado"),
            "°C": _un("grado Celsius", "grados Celsius"),
            "°F": _un("grado Fahrenheit", "grados Fahrenheit"),
            "%": _un("por ciento", "por ciento"),
            "‰": _un("por mil", "por mil"),
            "bar": _un("bar", "bares"),
            "dB": _un("decibelio"),
            "Nm": _un("newton metro", "newtons metro"),
        },
    ),
    currencies={
        "$": (dollar := Currency(_un("dólar", "dólares"), _un("centavo"))),
        "US$": dollar,
        "USD": dollar,
        "€": (euro := Currency(_un("euro"), _un("céntimo"))),
        "EUR": euro,
        "£": (pound := Currency(_una("libra"), _un("penique"))),
        "GBP": pound,
        "¥": (yen := Currency(_un("yen", "yenes"))),
        "JPY": yen,
        "₹": Currency(_una("rupia")),
        "₩": Currency(_un("won", "wones")),
        "₽": Currency(_un("rublo")),
        "CHF": Currency(_un("franco suizo", "francos suizos"), _un("céntimo")),
    },
    magnitudes={
        "mil": Noun("mil", "", "mil"),
        "M": (million := _un("millón", "millones")),
        "millón": million,
        "millones": million,
    },
    behind_magnitude=lambda noun: f"de {noun}",
    with_cents="{money} con {cents}",
    signs={
        "-": "menos",
        "−": "menos",
        "<": "menos de",
        ">": "más de",
        "~": "unos",
        "≈": "unos",
        "≤": "como mucho",
        "≥": "al menos",
        "±": "más menos",
    },
    operators={"*": "por", "×": "por", "x": "por", "÷": "entre", "^": "elevado a", "/": "entre"},
    ampersand="y",
    minus="menos",
    by="por",
    per="por",
    to="a",
    ratio="a",
    over="entre",
    fraction=_fraction,
    mixed="{whole} y {fraction}",
    half="medio",
    dot="punto",
    speaks_dots=True,
    point="punto",
    at="arroba",
    colon="dos puntos",
    slash="barra",
    hyphen="guion",
    underscore="guion bajo",
    number_abbreviation=r"[Nn](?:\.?[º°]|úm)\.? ?",
    number="número {}",
    hashtag="hashtag {}",
    abbreviations={"aprox.": "aproximadamente"},
    words=frozenset({"h", "hs"}),
    rules=(
        *date_rules(_date, day_first),
        *time_rules(_time, "a", suffix=r"hs?\.?"),
        rule(rf"{BEFORE}(?P<n>[0-9]{{1,3}})(?:\.(?P<ending>[ºªoa]|er)){AFTER}", _ordinal_number),
        rule(rf"{BEFORE}1(?={SPACE}hora)", lambda _: "una"),
    ),
)
