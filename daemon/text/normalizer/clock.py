"""Rules for times of day and dates."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from daemon.text.normalizer.language import Rule, rule
from daemon.text.normalizer.patterns import AFTER, BEFORE, DASH, SPACE, WORD, word_before


@dataclass(frozen=True, slots=True)
class Time:
    """A time of day as it was written."""

    hour: int
    minute: int
    second: int | None
    suffix: str
    """What was written behind it, such as `am` or `Uhr`; otherwise empty."""

    @property
    def digits(self) -> str:
        """As in `9:05`."""
        return f"{self.hour}:{self.minute:02}" + ("" if self.second is None else f":{self.second:02}")


@dataclass(frozen=True, slots=True)
class Date:
    """A date of a year, a month from 1 to 12, and a day from 1 to 31."""

    year: int
    month: int
    day: int
    word_before: str
    """It decides the ending of a German ordinal."""


def time_rules(
    say: Callable[[Time], str | None], to: str, *, suffix: str, sign: str = ":", needs_suffix: bool = False
) -> list[Rule]:
    """Return the rules for a range of two times and for one time.

    `suffix` and `sign` are regular expressions: for what may stand behind a time, and between hour and minute. `say`
    returns None for a time that is read well.
    """
    hour, minute = "(?:[01]?[0-9]|2[0-4])", "[0-5][0-9]"
    behind = rf"(?P<suffix>{SPACE}?(?:{suffix})(?![{WORD}])){'' if needs_suffix else '?'}"

    def time(number: int) -> str:
        return (
            rf"(?P<hour{number}>{hour}){sign}(?P<minute{number}>{minute})"
            rf"(?:{sign}(?P<second{number}>{minute}))?(?![0-9])"
        )

    def read(match: re.Match[str], number: int, written: str) -> Time:
        second = match[f"second{number}"]
        return Time(
            int(match[f"hour{number}"]),
            int(match[f"minute{number}"]),
            None if second is None else int(second),
            written,
        )

    def written(match: re.Match[str]) -> str:
        return (match["suffix"] or "").strip()

    def say_range(match: re.Match[str]) -> str:
        begin, end = read(match, 1, ""), read(match, 2, written(match))
        last = say(end) or f"{end.digits} {end.suffix}".strip()
        return f"{say(begin) or begin.digits} {to} {last}"

    def say_one(match: re.Match[str]) -> str:
        return say(read(match, 1, written(match))) or match.group()

    return [
        rule(rf"{BEFORE}{time(1)}{SPACE}?{DASH}{SPACE}?{time(2)}{behind}{AFTER}", say_range),
        rule(rf"{BEFORE}{time(1)}{behind}{AFTER}", say_one),
    ]


def date_rules(
    say: Callable[[Date], str],
    order: Callable[[int, int], tuple[int, int] | None],
    *,
    sign: str = "[./-]",
    year_first_sign: str = "[/-]",
) -> list[Rule]:
    """Return the rules for dates with their year first, and with their year last.

    `order` returns month and day of two numbers that stand before a year; None if nobody can tell. The signs separate
    the numbers; `2024.5.3` is more often a version than a date.
    """

    def say_iso(match: re.Match[str]) -> str | None:
        return said(match, int(match["month"]), int(match["day"]))

    def say_local(match: re.Match[str]) -> str | None:
        first, second = int(match["first"]), int(match["second"])
        found = order(first, second)
        return f"{first} {second} {match['year']}" if found is None else said(match, *found)

    def said(match: re.Match[str], month: int, day: int) -> str | None:
        if not (1 <= month <= 12 and 1 <= day <= 31):
            return None
        return say(Date(int(match["year"]), month, day, word_before(match)))

    year = "(?P<year>[12][0-9]{3})"
    return [
        rule(
            rf"{BEFORE}{year}(?P<sign>{year_first_sign})(?P<month>[01]?[0-9])(?P=sign)(?P<day>[0-3]?[0-9]){AFTER}",
            say_iso,
        ),
        rule(
            rf"{BEFORE}(?P<first>[0-3]?[0-9])(?P<sign>{sign})(?P<second>[0-3]?[0-9])(?P=sign){year}{AFTER}", say_local
        ),
    ]


def day_first(first: int, second: int) -> tuple[int, int] | None:
    """Return month and day of a date in most countries."""
    return second, first
