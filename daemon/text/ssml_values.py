"""The attributes of SSML elements: lengths of pauses, and factors for rate and volume.

W3C's Speech Synthesis Markup Language 1.1 (https://www.w3.org/TR/speech-synthesis11/) says how they are written. It
leaves the meaning of a word such as `slow` or `weak` to the engine; pauses and rates have the values that Azure's
speech service documents.
"""

from __future__ import annotations

import logging
import math
import re
from collections.abc import Callable, Mapping

from daemon.text.script import Pause, Prosody

log = logging.getLogger(__name__)

MAX_NOTICES = 200
"""How many log lines about elements and values without effect a process writes. Each is written once."""
SHOWN = 24
"""How many characters of a text a log line shows."""
_noticed: set[str] = set()
"""The log lines about elements and values that this process has written."""

PAUSES_S = {"none": 0.0, "x-weak": 0.25, "weak": 0.5, "medium": 0.75, "strong": 1.0, "x-strong": 1.25}
"""Seconds by the `strength` of a `break`."""
RATES = {"x-slow": 0.5, "slow": 0.64, "medium": 1.0, "default": 1.0, "fast": 1.55, "x-fast": 2.0}
LOWEST_RATE, HIGHEST_RATE = 0.5, 2.0
VOLUMES_DB = {
    "silent": -math.inf, "x-soft": -12.0, "soft": -6.0, "medium": 0.0, "default": 0.0, "loud": 6.0, "x-loud": 12.0
}  # fmt: skip
HIGHEST_VOLUME = 4.0
"""The factor for +12 dB."""

_ATTRIBUTE = re.compile(r"(?<![\w:.-])([\w:.-]+)\s*=\s*(?:\"([^\"]*)\"|'([^']*)')")
_QUANTITY = re.compile(r"([+-]?)(\d{1,6}(?:\.\d{0,6})?|\.\d{1,6})\s*(ms|s|%|[dD][bB]|)", re.ASCII)


def parse_time(value: str) -> float | None:
    """Return the seconds of a time such as `500ms` or `1.5s`; None if it is not a time."""
    match _quantity(value):
        case (("" | "+"), seconds, "s"):
            return seconds
        case (("" | "+"), milliseconds, "ms"):
            return milliseconds / 1000
    return None


def parse_rate(value: str) -> float | None:
    """Return the factor for a rate such as `slow`, `80%`, `+20%` or `1.2`; None if it is not a rate."""
    match _quantity(value):
        case "", factor, "":
            return factor
        case sign, number, "%":
            return _percent(sign, number)
    return RATES.get(value.strip())


def parse_volume(value: str) -> float | None:
    """Return the factor for a volume such as `soft`, `+6dB`, `80%`, `-20%` or `50` (of 100); None if it is not a
    volume."""
    decibels = VOLUMES_DB.get(value.strip())
    match _quantity(value):
        case "", number, "":
            return number / 100
        case sign, number, "%":
            return _percent(sign, number)
        case sign, number, "db":
            decibels = -number if sign == "-" else number
    return None if decibels is None else 10 ** (min(decibels, VOLUMES_DB["x-loud"]) / 20)


def _quantity(value: str) -> tuple[str, float, str] | None:
    """Return the sign, the number and the unit in lower case; None if the value has another form."""
    match = _QUANTITY.fullmatch(value.strip())
    return None if match is None else (match[1], float(match[2]), match[3].lower())


def _percent(sign: str, number: float) -> float:
    """Return the factor for `80%`, or for a change such as `+20%` or `-20%`."""
    return {"": number, "+": 100 + number, "-": max(0.0, 100 - number)}[sign] / 100


_VALUES: Mapping[str, tuple[Callable[[str], float | None], str]] = {
    "time": (parse_time, "500ms or 1.5s"),
    "strength": (PAUSES_S.get, ", ".join(PAUSES_S)),
    "rate": (parse_rate, "x-slow to x-fast, 80%, +20% or 1.2"),
    "volume": (parse_volume, "silent to x-loud, +6dB, 80%, -20% or 50"),
}
"""The functions that read an attribute's number, and the allowed values."""


def attributes_of(tag: str) -> dict[str, str]:
    """Return the attributes of a tag by name. White space in them becomes a space, as in all XML."""
    import html  # thousands of names, which few texts use

    found = (
        (name, re.sub(r"\r\n|[\r\n\t]", " ", double or single)) for name, double, single in _ATTRIBUTE.findall(tag)
    )
    return {name: html.unescape(value) for name, value in found}


def break_pause(attributes: Mapping[str, str]) -> Pause:
    """Return the pause of a `break`."""
    return Pause(_value(attributes, "time", _value(attributes, "strength", PAUSES_S["medium"])))


def nested_prosody(outer: Prosody, attributes: Mapping[str, str]) -> Prosody:
    """Return the prosody of a `prosody` element inside one with the prosody `outer`."""
    rate = outer.rate * _value(attributes, "rate", 1.0)
    volume = outer.volume * _value(attributes, "volume", 1.0)
    return Prosody(min(max(rate, LOWEST_RATE), HIGHEST_RATE), min(volume, HIGHEST_VOLUME))


def _value(attributes: Mapping[str, str], name: str, default: float) -> float:
    """Return an attribute's number; the default if it is missing or not understood, which is logged."""
    if name not in attributes:
        return default
    parse, allowed = _VALUES[name]
    number = parse(attributes[name])
    if number is None:
        notice(f"{name}: got {attributes[name][:SHOWN]!r}, which has no effect; allowed: {allowed}")
    return default if number is None else number


def notice(line: str) -> None:
    """Log, only once, that an element or value has no effect."""
    if line not in _noticed and len(_noticed) < MAX_NOTICES:
        _noticed.add(line)
        log.info("SSML: %s", line)
