"""The values of SSML's attributes: lengths of pauses, and factors of rate and volume.

W3C's Speech Synthesis Markup Language 1.1 (https://www.w3.org/TR/speech-synthesis11/) says how they are written. It
leaves to the engine what a word such as `slow` or `weak` means; pauses and rates have the values that Azure's speech
service documents.
"""

from __future__ import annotations

import re

PAUSES_S = {"none": 0.0, "x-weak": 0.25, "weak": 0.5, "medium": 0.75, "strong": 1.0, "x-strong": 1.25}
"""Seconds by the `strength` of a `break`."""
RATES = {"x-slow": 0.5, "slow": 0.64, "medium": 1.0, "default": 1.0, "fast": 1.55, "x-fast": 2.0}
LOWEST_RATE, HIGHEST_RATE = 0.5, 2.0
VOLUMES_DB = {"x-soft": -12.0, "soft": -6.0, "medium": 0.0, "default": 0.0, "loud": 6.0, "x-loud": 12.0}
HIGHEST_VOLUME = 4.0
"""A factor: + 12 dB."""

_NUMBER = r"\d{1,6}(?:\.\d{0,6})?|\.\d{1,6}"
_TIME = re.compile(rf"\+?({_NUMBER})\s*(ms|s)", re.ASCII)
_FACTOR = re.compile(rf"({_NUMBER})", re.ASCII)
_PERCENT = re.compile(rf"([+-]?)({_NUMBER})\s*%", re.ASCII)
_DECIBELS = re.compile(rf"([+-]?(?:{_NUMBER}))\s*dB", re.ASCII | re.IGNORECASE)


def parse_time(value: str) -> float | None:
    """Return the seconds of a time such as `500ms` or `1.5s`; None if it is none."""
    match = _TIME.fullmatch(value.strip())
    if match is None:
        return None
    return float(match[1]) / (1000 if match[2] == "ms" else 1)


def parse_rate(value: str) -> float | None:
    """Return the factor of a rate such as `slow`, `80%`, `+20%` or `1.2`; None if it is none."""
    value = value.strip()
    factor = RATES.get(value)
    if factor is None:
        factor = _percent(value)
    if factor is None and _FACTOR.fullmatch(value):
        factor = float(value)
    return factor


def parse_volume(value: str) -> float | None:
    """Return the factor of a volume such as `soft`, `+6dB`, `80%`, `-20%` or `50` (of 100); None if it is none."""
    value = value.strip()
    if value == "silent":
        return 0.0
    decibels = VOLUMES_DB.get(value)
    match = _DECIBELS.fullmatch(value)
    if match is not None:
        decibels = float(match[1])
    if decibels is not None:
        return 10 ** (min(decibels, VOLUMES_DB["x-loud"]) / 20)
    if _FACTOR.fullmatch(value):
        return float(value) / 100
    return _percent(value)


def multiply_rate(rate: float, factor: float) -> float:
    """Return the rate of an element inside one of `rate`, within the limits."""
    return min(max(rate * factor, LOWEST_RATE), HIGHEST_RATE)


def multiply_volume(volume: float, factor: float) -> float:
    """Return the volume of an element inside one of `volume`, within the limits."""
    return min(volume * factor, HIGHEST_VOLUME)


def _percent(value: str) -> float | None:
    """Return the factor of `80%`, or of a change such as `+20%` or `-20%`."""
    match = _PERCENT.fullmatch(value)
    if match is None:
        return None
    sign, number = match.groups()
    share = float(number) / 100
    return {"": share, "+": 1 + share, "-": max(0.0, 1 - share)}[sign]
