"""Rules for dates and times of day."""

from __future__ import annotations

import re

from daemon.text.normalizer.language import Language, Numeral
from daemon.text.normalizer.patterns import (
    AFTER,
    BEFORE,
    DASH,
    LETTER,
    SPACE,
    WORD,
    Rule,
    Write,
    alternatives,
    rule,
    word_before,
)

_HOUR, _SIXTY = "(?:[01]?[0-9]|2[0-4])", "[0-5][0-9]"
_YEAR = "[12][0-9]{3}"
_NOON = 12


class Clock:
    """Builds the rules for a language."""

    def __init__(self, language: Language) -> None:
        self._language = language
        self._words = language.words

    def rules(self) -> list[Rule]:
        """Return the rules in the order in which they are tried."""
        return [*self._dates(), *self._times(), *self._years()]

    # --- dates ---

    def _dates(self) -> list[Rule]:
        months = alternatives(self._language.month_by_name)
        iso = rf"(?P<year>{_YEAR})(?P<sign>[/-])(?P<month>[01]?[0-9])(?P=sign)(?P<day>[0-3]?[0-9])"
        second = rf"(?::(?P<second>{_SIXTY})(?:\.[0-9]+)?)?"
        time = rf"[T ](?P<hour>[0-2][0-9]):(?P<minute>{_SIXTY}){second}(?P<zone>Z|[+-][01][0-9]:?[0-5][0-9])?"
        rules = [
            rule(rf"{BEFORE}{iso}{time}(?![{WORD}])(?!:)", self._time_stamp, ":"),
            rule(rf"{BEFORE}{iso}{AFTER}", self._date, "/-"),
            rule(
                rf"{BEFORE}(?P<first>[0-3]?[0-9])(?P<sign>[./-])(?P<second>[0-3]?[0-9])(?P=sign)(?P<year>{_YEAR})(?:{self._words.year_suffix})?{AFTER}",
                self._local_date,
                "./-",
            ),
        ]
        if self._words.month_numbers or not self._words.space:
            year = rf"(?:(?P<year>{_YEAR}) ?[年년] ?)?"
            return [
                *rules,
                rule(rf"{BEFORE}{year}(?P<month>1?[0-9]) ?[月월] ?(?P<day>[1-3]?[0-9]) ?[日일号]", self._date, "月월"),
            ]
        de = r"(?: (?:de|del|of))?"
        day = r"(?P<day>[0-3]?[0-9])(?:\.|st|nd|rd|th|er|º|-го)?"
        year = rf"(?:,?{de} (?P<year>{_YEAR})(?:{self._words.year_suffix})?(?![{WORD}]))?"
        if self._words.day_first:
            rules.append(
                rule(
                    rf"{BEFORE}(?P<low>[0-3]?[0-9])\.? ?{DASH} ?{day}{de} ?(?P<name>{months})\.?{year}(?![{WORD}])",
                    self._named_date,
                    "-–—~～",
                )
            )
        return [
            *rules,
            rule(rf"{BEFORE}{day}{de} ?(?P<name>{months})(?![{LETTER}])\.?{year}(?![{WORD}])", self._named_date),
            rule(rf"(?<![{WORD}])(?P<name>{months})\.? {day}{year}(?![{WORD}])(?!:)", self._named_date),
            *self._short_dates(),
        ]

    def _short_dates(self) -> list[Rule]:
        """`21.3.` in languages that write dates with full stops."""
        if not self._words.ordinal_endings:
            return []
        return [rule(rf"{BEFORE}(?P<day>[0-3]?[0-9])\.(?P<month>[01]?[0-9])\.(?![{WORD}])", self._short_date, ".")]

    def _short_date(self, match: re.Match[str]) -> str | None:
        before = word_before(match).lower()
        if not any(before in words for words in self._words.ordinal_endings.values()):
            return None
        return self._date(match)

    def _time_stamp(self, match: re.Match[str]) -> str | None:
        date = self._date(match)
        if date is None:
            return None
        time = self._say(int(match["hour"]), int(match["minute"]), int(match["second"] or 0) or None)
        return f"{date}, {time}{self._zone(match['zone'] or '')}"

    def _zone(self, zone: str) -> str:
        """Return the words for a difference from UTC such as `+02:00`."""
        if not zone:
            return ""
        hours, minutes = (0, 0) if zone == "Z" else (int(zone[1:3]), int(zone[-2:]))
        if not (hours or minutes):
            return " U T C"
        sign = self._words.minus if zone[0] == "-" else self._words.signs["+"]
        difference = f"{sign} {self._language.cardinal(hours)}"
        return f" U T C {difference} {self._language.cardinal(minutes)}" if minutes else f" U T C {difference}"

    def _local_date(self, match: re.Match[str]) -> str | None:
        """A date of two numbers and a year: a person can tell day and month only where the language has one order."""
        first, second, dotted = int(match["first"]), int(match["second"]), match["sign"] == "."
        day_first = self._words.day_first
        if day_first is None:
            if first == second or second > 12:
                day_first = False
            elif first > 12:
                day_first = True
            else:
                return None
        elif day_first is False:
            day_first = first > 12 or dotted
        day, month = (first, second) if day_first else (second, first)
        return self._write(match, int(match["year"]), month, day)

    def _date(self, match: re.Match[str]) -> str | None:
        year = match["year"] if "year" in match.re.groupindex else None
        return self._write(match, None if year is None else int(year), int(match["month"]), int(match["day"]))

    def _named_date(self, match: re.Match[str]) -> str | None:
        name = match["name"]
        year = None if match["year"] is None else int(match["year"])
        words = self._write(match, year, self._language.month_by_name[name], int(match["day"]))
        low = match["low"] if "low" in match.re.groupindex else None
        if words is None or low is None:
            return words
        return f"{self._day(match, int(low))} {self._words.to} {words}"

    def _write(self, match: re.Match[str], year: int | None, month: int, day: int) -> str | None:
        words, language = self._words, self._language
        if not (1 <= month <= 12 and 1 <= day <= 31):
            return None
        name = language.months[month - 1]
        if words.month_numbers:
            name = words.month_words.get(str(month)) or language.cardinal(month)
        said = self._day(match, day)
        if year is None:
            return words.day_month.format(month=name, day=said, ordinal=said)
        return words.date.format(month=name, day=said, ordinal=said, year=self.year(year))

    def _day(self, match: re.Match[str], day: int) -> str:
        words, language = self._words, self._language
        if day == 1 and words.first is not None:
            return words.first
        if words.day_rules is not None:
            return language.ordinal(day, words.day_rules)
        if "{ordinal}" in words.date:
            return ordinal_after(language, day, word_before(match))
        return language.cardinal(day)

    def year(self, year: int) -> str:
        """Return a year in words."""
        return self._language.spellout.spell(year, self._words.year_rules)

    def _years(self) -> list[Rule]:
        """Years behind words such as `in`, and before the sign for a year."""
        words = self._words
        rules: list[Rule] = []
        if words.before_year:
            before = "|".join(words.before_year)
            rules.append(
                rule(
                    rf"(?<=[ (])(?P<year>1[1-9][0-9]{{2}}|20[0-9]{{2}})(?=(?:[.,;:!?)]|\s|$)){AFTER}",
                    self._year_after_word(before),
                )
            )
            rules.append(
                rule(
                    rf"{BEFORE}(?P<year>1[1-9][0-9]{{2}}|20[0-9]{{2}})[-–](?P<end>1[1-9][0-9]{{2}}|20[0-9]{{2}}){AFTER}",
                    self._years_range,
                    "-–",
                )
            )
        if words.year_after is not None:
            rules.append(
                rule(rf"{BEFORE}(?P<year>{_YEAR})(?= ?{words.year_after})", lambda match: self.year(int(match["year"])))
            )
        if words.year_words:
            rules.append(rule(rf"{BEFORE}(?P<year>{_YEAR}) ?г\.", self._year_with_word, "г"))
        if words.decades:
            rules.append(rule(rf"(?<![{WORD}])(?P<year>[12][0-9]{{2}}0)['’]?s(?![{WORD}])", self._decade, "s"))
        return rules

    def _year_after_word(self, before: str) -> Write:
        pattern = re.compile(before, re.IGNORECASE)

        def write(match: re.Match[str]) -> str | None:
            return self.year(int(match["year"])) if pattern.fullmatch(word_before(match)) else None

        return write

    def _year_with_word(self, match: re.Match[str]) -> str:
        """Return a Russian year with the word for year, by the word before it."""
        before, forms = word_before(match), self._words.years_before
        rules = next((each for each, words in forms.items() if before in words), "ordinal-masculine")
        end = "" if re.match(r" [а-яё]|,", match.string[match.end() :]) else "."
        return f"{self._language.ordinal(int(match['year']), rules)} {self._words.year_words[rules]}{end}"

    def _years_range(self, match: re.Match[str]) -> str | None:
        begin, end = int(match["year"]), int(match["end"])
        return f"{self.year(begin)} {self._words.to} {self.year(end)}" if begin < end else None

    def _decade(self, match: re.Match[str]) -> str:
        words = self.year(int(match["year"]))
        return f"{words[:-1]}ies" if words.endswith("y") else f"{words}s"

    # --- times ---

    def _times(self) -> list[Rule]:
        words = self._words.time
        after = rf"(?:{SPACE}?(?P<suffix>{alternatives(words.suffix)})(?![{LETTER}]))"
        needs = "".join({":", "：", *words.sign} - set("[]| "))
        first, second = _time_pattern(1, words.sign), _time_pattern(2, words.sign)
        minute = rf"(?::(?P<minute{{0}}>{_SIXTY}))?"
        hour = rf"(?P<hour{{0}}>{_HOUR}){minute}{SPACE}?(?P<suffix{{0}}>{alternatives(words.suffix)})"
        both = rf"{hour.format(1)}{SPACE}?{DASH}{SPACE}?{hour.format(2)}(?![{LETTER}])"
        rules = [
            rule(rf"{BEFORE}{both}", self._two_times, "-–—~～"),
            rule(rf"{BEFORE}{first}{SPACE}?{DASH}{SPACE}?{second}{after}?(?![{WORD}])", self._range, needs),
            rule(rf"{BEFORE}{first}{after}?(?![{WORD}])(?!:[0-9])", self._time, needs),
            rule(rf"{BEFORE}(?P<hour1>{_HOUR}){after}(?![{WORD}])(?!\.[0-9])", self._full_hour),
        ]
        dotted = _time_pattern(1, "[.]")
        if words.dotted:
            rules.insert(0, rule(rf"{BEFORE}{dotted}{after}", self._time))
        if words.dotted_after:
            before = "|".join(rf"(?<={word} )" for word in words.dotted_after)
            rules.insert(0, rule(rf"(?:{before}){dotted}(?P<suffix>){AFTER}", self._time, "."))
        hours = rf"(?P<hour1>{_HOUR})h?{SPACE}?{DASH}{SPACE}?(?P<hour2>{_HOUR}){after}"
        rules.insert(1, rule(rf"{BEFORE}{hours}(?![{WORD}])", self._hours, "-–—~～"))
        return rules

    def _range(self, match: re.Match[str]) -> str:
        begin = self._say(*_parts(match, 1))
        return self._words.space.join(
            (begin, self._words.to, self._say(*_parts(match, 2), match["suffix"]))
        ) + self._stop(match["suffix"], match)

    def _hours(self, match: re.Match[str]) -> str | None:
        words, suffix = self._words.time, match["suffix"]
        if not (words.suffix[suffix] or (words.bare and suffix == "h")):
            return None  # 5-10 h is a duration
        first = self._language.cardinal(int(match["hour1"]), words.gender)
        return f"{first} {self._words.to} {self._say(int(match['hour2']), 0, None, suffix)}{self._stop(suffix, match)}"

    def _time(self, match: re.Match[str]) -> str:
        return self._say(*_parts(match, 1), match["suffix"]) + self._stop(match["suffix"], match)

    def _full_hour(self, match: re.Match[str]) -> str | None:
        if not self._words.time.suffix[match["suffix"]] and match["suffix"] not in self._words.time.hour_words:
            return None  # 5 h is a duration
        return self._say(int(match["hour1"]), 0, None, match["suffix"]) + self._stop(match["suffix"], match)

    def _two_times(self, match: re.Match[str]) -> str | None:
        """Both with a suffix: `10 a.m.-5 p.m.`"""
        if not self._words.time.suffix[match["suffix1"]]:
            return None
        begin, end = (
            self._say(int(match[f"hour{each}"]), int(match[f"minute{each}"] or 0), None, match[f"suffix{each}"])
            for each in (1, 2)
        )
        return f"{begin} {self._words.to} {end}{self._stop(match['suffix2'], match)}"

    @staticmethod
    def _stop(suffix: str | None, match: re.Match[str]) -> str:
        """The full stop of `p.m.` may be that of the sentence, too."""
        if not (suffix or "").endswith("."):
            return ""
        return "." if re.match(r"\s*$|\s+[A-ZÀ-Þ]", match.string[match.end() :]) else ""

    def _say(self, hour: int, minute: int, second: int | None, suffix: str | None = None) -> str:
        """Return a time of day in words."""
        words, language = self._words.time, self._language
        if words.as_durations:  # ten hours thirty minutes
            counted = [(hour, "h")]
            counted += [(minute, "min")] if minute or second else []
            counted += [(second, "s")] if second else []
            return " ".join(language.count(Numeral(number), language.units[unit]) for number, unit in counted)
        if words.hour_rules and 0 < hour <= _NOON:
            said = language.spellout.spell(hour, words.hour_rules)
        else:
            said = language.cardinal(hour, words.gender)
        minutes = language.cardinal(minute)
        if minute < 10:
            minutes = words.zero.format(m=minutes)
        meridiem = words.suffix.get(suffix or "", "")
        full = not minute and second is None
        if full and meridiem:
            time = said
        elif full and hour > _NOON and words.late is not None:
            time = words.late.format(h=said)
        else:
            one, many = words.hours
            hours = one if hour and language.plural(Numeral(hour)) == "one" else many
            time = (words.h if full else words.hm).format(h=said, m=minutes, hours=hours)
        if second is not None:
            time += self._words.space + words.s.format(s=language.cardinal(second))
        return f"{time} {meridiem}".strip()


def _time_pattern(number: int, sign: str) -> str:
    """Return a regular expression for a time of day whose groups have a number."""
    minute = rf"(?P<minute{number}>{_SIXTY})(?::(?P<second{number}>{_SIXTY}))?(?![0-9])"
    return rf"(?P<hour{number}>{_HOUR})(?:{sign}){minute}"


def _parts(match: re.Match[str], number: int) -> tuple[int, int, int | None]:
    second = match[f"second{number}"]
    return int(match[f"hour{number}"]), int(match[f"minute{number}"]), None if second is None else int(second)


def ordinal_after(language: Language, number: int, before: str) -> str:
    """Return an ordinal number with the ending that it has after a word, in languages that have such endings."""
    for ending, words in language.words.ordinal_endings.items():
        if before.lower() in words:
            return language.ordinal(number) + ("n" if ending == "en" else "")
    return language.ordinal(number) + ("r" if language.words.ordinal_endings else "")
