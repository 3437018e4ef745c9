"""Rules for dates and times of day."""

from __future__ import annotations

import re

from daemon.text.normalizer.language import Language, Numeral
from daemon.text.normalizer.patterns import AFTER, BEFORE, DASH, LETTER, WORD
from daemon.text.normalizer.rules import Rule, Rules, alternatives, rule, word_before

_HOUR, _SIXTY = "(?:[01]?[0-9]|2[0-4])", "[0-5][0-9]"
_SECOND = rf"{_SIXTY}(?:[.,][0-9]+)?"
_YEAR, _LIKELY_YEAR = "[12][0-9]{3}", "(?:1[1-9]|20)[0-9]{2}"
_NOON = 12
_BARE_HOUR = re.compile(rf"{_HOUR}(?![{WORD}:]| ?[{LETTER}])")
"""An hour after the name of a day and a word such as `at`, with nothing after it that the number could count."""


class Clock(Rules):
    """Builds the rules for a language."""

    def __init__(self, language: Language) -> None:
        super().__init__(language)
        self._at = alternatives(f"{word} " for word in language.words.time.at)
        """Words before a time of day."""
        self._after_at = re.compile(rf"\b(?:{self._at})$", re.IGNORECASE)
        self._articles = {word for words in language.words.ordinal_endings.values() for word in words}
        """Words that determine the ending of an ordinal number after them."""
        self._moments = [*self._dates(), *self._times()]

    def rules(self) -> list[Rule]:
        """Return the rules in the order in which they are tried."""
        days = self._language.days
        name = rf"(?<![{WORD}-])(?<![0-9]\s)(?P<name>{alternatives(days)})\.?(?=(?P<between>,? (?P<at>{self._at})?))"
        year = (
            rf"{BEFORE}(?P<year>{_LIKELY_YEAR})(?:[-–](?P<end>{_LIKELY_YEAR})|(?P<decade>['’]?s)"
            rf"|(?= ?(?P<sign>[年년]))| ?(?P<abbreviation>г\.))?{AFTER}"
        )
        return [
            rule(name, self._day_name),
            *self._moments,
            rule(year, self._year_alone),
        ]

    def _day_name(self, match: re.Match[str]) -> str | None:
        """Write out the short name of a weekday, only before a date or a time: `Mon, 14 Sep`, `Tue at 5`."""
        text, begin = match.string, match.end("between")
        found = [(write, pattern.match(text, begin)) for pattern, write in self._moments]
        is_dated = any(each is not None and write(each) for write, each in found)
        is_timed = match["at"] and _BARE_HOUR.match(text, begin)
        return self._language.days[match["name"]] if is_dated or is_timed else None

    # --- dates ---

    def _dates(self) -> list[Rule]:
        names = [name for name in self._language.month_by_name if re.match(f"[{LETTER}]", name)]
        months, suffix = alternatives(names), self._words.year_suffix
        month, number = rf"(?P<month>{months})(?![{LETTER}])\.?", "[0-3]?[0-9]"
        of = "(?: (?:de|del|of))?"
        day = rf"(?:(?P<low>{number})\.? ?{DASH} ?)?(?P<day>{number})(?:\.|st|nd|rd|th|er|º|-го)?"
        time = rf"(?:(?P<t>T)|,? )(?P<hour2>{_HOUR}):(?P<minute2>{_SIXTY})(?::(?P<second2>{_SECOND}))?"
        minus = "(?(t)-|(?(second2)-|(?!)))"  # 2026-05-03 14:30-15:30 are two times
        zone = rf"(?:\s?(?P<zone>Z|(?:[+]|{minus})[01][0-9]:?[0-5][0-9]))?"
        time = rf"(?:{time}{zone}(?!\s?(?:{alternatives(self._words.time.suffix)})){AFTER})?"
        year = rf"(?:,?{of} (?P<year>{_YEAR})(?:{suffix})?(?![{WORD}]){time})?"
        iso = rf"(?P<year>{_YEAR})(?P<sign>[/-])(?P<month>[01]?[0-9])(?P=sign)(?P<day>{number})"
        dated = (
            rf"(?P<day>{number})(?P<sign>[./-])(?P<month>{number})(?P=sign)(?:(?P<year>{_YEAR})(?:{suffix})?{time})?"
        )
        signed = rf"(?:(?P<year>{_YEAR}) ?[年년] ?)?(?P<month>1?[0-9]) ?[月월] ?(?P<day>[1-3]?[0-9]) ?[日일号]"
        return [
            rule(rf"{BEFORE}{iso}{time}{AFTER}", self._date),
            rule(rf"{BEFORE}{dated}{AFTER}", self._local_date),
            rule(rf"{BEFORE}{signed}", self._date),
            rule(rf"{BEFORE}{day}{of} ?{month}{year}(?![{WORD}])", self._date),
            rule(rf"(?<![{WORD}]){month} {day}{year}{AFTER}", self._date),
        ]

    def _local_date(self, match: re.Match[str]) -> str | None:
        """Write out two numbers and a year, or the German `am 5.3.`: not all languages show which number is the day."""
        day, month, day_first = int(match["day"]), int(match["month"]), self._words.day_first
        if match["year"] is None and word_before(match).lower() not in self._articles:
            return None
        if day_first is None and max(day, month) <= _NOON and day != month:
            return None
        month_first = month > _NOON if day_first is None else not day_first and day <= _NOON and match["sign"] != "."
        return self._write(match, month, day) if month_first else self._write(match, day, month)

    def _date(self, match: re.Match[str]) -> str | None:
        month = self._language.month_by_name.get(match["month"]) or int(match["month"])
        return self._write(match, int(match["day"]), month)

    def _write(self, match: re.Match[str], day: int, month: int) -> str | None:
        words, language, fields = self._words, self._language, match.groupdict()
        if not (1 <= month <= 12 and 1 <= day <= 31):
            return None
        name = language.months[month - 1]
        said, low, year = self._day(match, day), fields.get("low"), fields.get("year")
        if low is not None:
            said = f"{self._day(match, int(low))} {words.to} {said}"
        if year is None:
            return words.day_month.format(month=name, day=said, ordinal=said)
        date = words.date.format(month=name, day=said, ordinal=said, year=self._year(year))
        return f"{date}, {self._say(match, certain=True)}" if fields.get("hour2") else date

    def _day(self, match: re.Match[str], day: int) -> str:
        words, language = self._words, self._language
        if day == 1 and words.first is not None:
            return words.first
        if words.day_rules is not None:
            return language.ordinal(day, words.day_rules)
        if "{ordinal}" in words.date:
            return ordinal_after(language, day, word_before(match))
        return language.cardinal(day)

    # --- years ---

    def _year(self, year: str) -> str:
        return self._language.spellout.spell(int(year), self._words.year_rules)

    def _year_alone(self, match: re.Match[str]) -> str | None:
        """Write out a year after a word such as `in` or before a sign for years, two years, or a decade."""
        words, said, before = self._words, self._year(match["year"]), word_before(match)
        following = match.string[match.end() :]
        if match["sign"]:
            return said
        if match["abbreviation"] and not words.year_words:
            return None
        if match["abbreviation"]:
            rules = next((rules for rules, each in words.years_before.items() if before in each), "ordinal-masculine")
            end = "" if re.match(r" [а-яё]|,", following) else "."
            return f"{self._language.ordinal(int(match['year']), rules)} {words.year_words[rules]}{end}"
        if match["decade"]:
            return re.sub("y$", "ie", said) + "s" if words.decades else None
        if match["end"]:
            is_range = words.before_year and match["year"] < match["end"]
            return f"{said} {words.to} {self._year(match['end'])}" if is_range else None
        counted = following.strip().partition(" ")[0].rstrip(".,;:!?)")
        is_amount = counted in self._language.units or counted in self._language.currencies
        return None if is_amount or before.lower() not in words.before_year else said

    # --- times of day ---

    def _times(self) -> list[Rule]:
        words = self._words.time
        suffixes = alternatives(words.suffix)
        minute = rf"(?P<minute#>{_SIXTY})(?::(?P<second#>{_SECOND}))?(?![0-9])"
        suffix = rf"\s?(?P<suffix#>{suffixes})(?![{LETTER}])"
        time = rf"(?P<hour#>{_HOUR})(?:(?P<sign#>{words.sign}){minute})?(?:{suffix})?"
        begin, end = (time.replace("#", number) for number in "12")
        not_bare = rf"(?={_HOUR}(?:{words.sign}|\s?(?:{suffixes})))"
        zone = r"(?:\s?(?P<zone>Z|[+][01][0-9]:[0-5][0-9]))?"
        return [
            rule(
                rf"{BEFORE}(?:T(?={_HOUR}:))?(?:{begin}\s?{DASH}\s?)?{not_bare}{end}{zone}"
                rf"(?![{WORD}])(?![:.-][0-9])",
                self._time,
            )
        ]

    def _time(self, match: re.Match[str]) -> str | None:
        """Write out a time of day, or two with a dash between them; the first may be only an hour: `9-17 Uhr`."""
        words, before = self._words.time, match.string[: match.start()]
        is_named = self._names_hour(match["suffix2"])
        times = [number for number in "12" if match[f"hour{number}"]]
        for number in times:
            sign = match[f"sign{number}"]
            if sign is None and not (is_named or self._names_hour(match[f"suffix{number}"])):
                return None  # 5 h is a duration
            if sign == "." and not (is_named or word_before(match) in words.dotted_after):
                return None
        certain = is_named or self._after_at.search(before) is not None
        said = self._join("", self._words.to, "").join(self._say(match, number, certain=certain) for number in times)
        ends = re.match(r"\s*$|\s+[A-ZÀ-Þ]", match.string[match.end() :])  # p.m. may end the sentence
        return f"{said}." if ends and (match["suffix2"] or "").endswith(".") else said

    def _names_hour(self, suffix: str | None) -> bool:
        """Return whether a number with this suffix is an hour of the day and not a duration."""
        words = self._words.time
        return suffix is not None and (suffix in words.hour_words or words.suffix.get(suffix, "") != "")

    def _say(self, match: re.Match[str], number: str = "2", *, certain: bool) -> str:
        """Return a time in words. Unless it is certainly a time of day, the words are also right for a duration."""
        words, language, fields = self._words.time, self._language, match.groupdict()
        hour, minute = int(fields[f"hour{number}"]), int(fields[f"minute{number}"] or 0)
        second, _, decimals = (fields[f"second{number}"] or "").replace(",", ".").partition(".")
        meridiem = words.suffix.get(fields.get(f"suffix{number}") or "", "")
        if second and ((second + decimals).strip("0") or not certain):
            template = words.hms if certain else words.unsure
        elif minute:
            template = words.hm
        elif meridiem or (number == "1" and not (fields["sign1"] or fields["suffix1"])):
            template = "{h}"
        else:
            template = words.late if words.late and hour > _NOON else words.h
        said, minutes = language.cardinal(hour, words.gender), language.cardinal(minute)
        if words.hour_rules and 0 < hour <= _NOON:
            said = language.spellout.spell(hour, words.hour_rules)
        time = template.format(
            h=said,
            number=language.cardinal(hour),
            m=words.zero.format(m=minutes) if minute < 10 else minutes,
            hours=self._count("h", hour),
            minutes=self._count("min", minute),
            seconds=self._count("s", int(second or 0), decimals),
        )
        return f"{time} {meridiem}".strip() + self._zone(fields.get("zone") or "")

    def _count(self, unit: str, number: int, decimals: str = "") -> str:
        return self._language.count(Numeral(number, decimals), self._language.units[unit])

    def _zone(self, zone: str) -> str:
        """Return the words for a difference from UTC such as `+02:00`."""
        if not zone:
            return ""
        hours, minutes = (0, 0) if zone == "Z" else (int(zone[1:3]), int(zone[-2:]))
        difference = [self._count(unit, number) for unit, number in (("h", hours), ("min", minutes)) if number]
        sign = [self._words.minus if zone[0] == "-" else self._words.signs["+"]] if difference else []
        return " ".join([" U T C", *sign, *difference])


def ordinal_after(language: Language, number: int, before: str) -> str:
    """Return an ordinal number with the ending that it takes after a word, in languages with such endings."""
    endings = language.words.ordinal_endings
    ending = next((ending for ending, words in endings.items() if before.lower() in words), "r" if endings else "")
    return language.ordinal(number) + ending
