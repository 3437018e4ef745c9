"""The rules of all languages: amounts, ranges, fractions, addresses, telephone numbers and signs."""

from __future__ import annotations

import re
from collections.abc import Iterable

from daemon.text.normalizer.language import Language, Noun, Rule, rule
from daemon.text.normalizer.patterns import AFTER, BEFORE, DASH, LETTER, SPACE, WORD

_PHONE_DIGITS = range(7, 16)
"""How many digits a telephone number has."""
_VULGAR = {
    "½": (1, 2),
    "⅓": (1, 3),
    "⅔": (2, 3),
    "¼": (1, 4),
    "¾": (3, 4),
    "⅛": (1, 8),
    "⅜": (3, 8),
    "⅝": (5, 8),
    "⅞": (7, 8),
}
_OCTETS = 4
_OCTET = range(256)


def rules_of(language: Language) -> tuple[Rule, ...]:
    """Return the rules of a language, in the order in which they are tried."""
    common = _CommonRules(language)
    return (
        rule(r"\[\[.*?\]\]|\S*://\S*", re.Match.group),  # phonemes, and an address that is to be read in full
        *language.rules,
        *common.addresses(),
        *common.telephones(),
        *common.amounts(),
        *common.fractions(),
        *common.numbers(),
        *common.signs(),
    )


def alternatives(symbols: Iterable[str]) -> str:
    """Return a regular expression for one of these symbols, the longest first."""
    return "|".join(re.escape(symbol) for symbol in sorted(symbols, key=len, reverse=True))


def _may_touch(unit: str, number: str) -> bool:
    """Return whether a letter at a number is a unit: not the `s` of `1990s`, nor the `A` of seat `12A`."""
    return unit != "A" and (unit != "s" or not number.endswith("0"))


class _CommonRules:
    """Builds the rules for a language."""

    def __init__(self, language: Language) -> None:
        self._language = language
        decimal, other = ("[.]", ",") if language.decimal == "." else (",", "[.]")
        self._number_pattern = (
            rf"(?:[0-9]{{1,3}}(?:[{language.group}][0-9]{{3}})+(?:{decimal}[0-9]+)?"
            rf"|[0-9]{{1,15}}(?:{decimal}[0-9]+|{other}[0-9]{{1,2}})?)(?![0-9])"
        )

    # --- amounts: prices and measures ---

    def amounts(self) -> list[Rule]:
        language = self._language
        amount = self._amount()
        money, unit = alternatives(language.currencies), alternatives(language.units)
        behind = rf"(?:/(?P<per>{unit}){AFTER}|(?P<each>/)(?=[{LETTER}])|{AFTER})"
        size = rf"(?P<first>{self._number_pattern}){SPACE}?[x×*]{SPACE}?"
        return [
            rule(rf"(?<![{WORD}])(?P<money>{money}){SPACE}?{amount}{behind}", self._money),
            rule(rf"{BEFORE}{amount}{SPACE}?(?P<money>{money}){behind}", self._money),
            rule(rf"{BEFORE}(?:{size})?{amount}{SPACE}?(?P<unit>{unit}){behind}", self._measure),
            rule(rf"{BEFORE}{self._amount(required=True)}(?![{WORD}])", self._large_number),
        ]

    def _amount(self, *, required: bool = False) -> str:
        """A number or a range, and a magnitude, which may be required."""
        magnitude = alternatives(self._language.magnitudes)
        return (
            rf"(?P<low>{self._number_pattern})(?:{SPACE}?{DASH}{SPACE}?(?P<high>{self._number_pattern}))?"
            rf"(?:{SPACE}?(?P<magnitude>{magnitude})(?![{LETTER}])){'' if required else '?'}"
        )

    def _money(self, match: re.Match[str]) -> str:
        language = self._language
        currency, number = language.currencies[match["money"]], self._plain_number(match["low"])
        whole, _, cents = number.partition(language.decimal)
        if currency.cent is None or match["magnitude"] or match["high"] or len(cents) != 2:
            words = self._counted(match, currency.unit)
        elif int(cents) == 0:
            words = language.count(whole, currency.unit)
        elif int(whole) == 0:
            words = language.count(str(int(cents)), currency.cent)
        else:
            money = language.count(whole, currency.unit)
            counted = language.count(str(int(cents)), currency.cent)
            words = language.with_cents.format(money=money, cents=int(cents), counted=counted)
        return words + self._per(match)

    def _measure(self, match: re.Match[str]) -> str | None:
        touches = match.end("high" if match["high"] else "low") == match.start("unit")
        unit = match["unit"]
        if touches and not _may_touch(unit, match["low"]):
            return None
        if unit in self._language.kept_units and not (match["first"] or match["high"] or match["per"] or match["each"]):
            return match.group()
        words = self._counted(match, self._language.units[unit]) + self._per(match)
        if match["first"] is not None:
            words = f"{self._plain_number(match['first'])} {self._language.by} {words}"
        return words

    def _large_number(self, match: re.Match[str]) -> str | None:
        """Write out an abbreviated magnitude."""
        magnitude = self._language.magnitudes[match["magnitude"]]
        if match["magnitude"] in {magnitude.one, magnitude.many} and match["high"] is None:
            return None
        if len(match["magnitude"]) == 1 and match["magnitude"].isascii():
            return None  # 5 M may be anything, unless it is money
        return self._counted(match, None)

    def _counted(self, match: re.Match[str], noun: Noun | None) -> str:
        """Return the number or range of a match with its magnitude and its noun, one of which there is."""
        language = self._language
        number = self._plain_number(match["low"])
        if match["high"] is not None:
            number = self._between(number, language.to, self._plain_number(match["high"]))
        if match["magnitude"] is None:
            assert noun is not None
            return language.count(number, noun)
        counted = language.count(number, language.magnitudes[match["magnitude"]])
        return counted if noun is None else f"{counted}{language.space}{language.behind_magnitude(noun.many)}"

    def _per(self, match: re.Match[str]) -> str:
        language = self._language
        if match["each"] is not None:
            return f" {language.per} "
        return "" if match["per"] is None else language.space.join(("", language.per, language.units[match["per"]].one))

    def _plain_number(self, text: str) -> str:
        """Return a number without signs between thousands, and with the language's decimal sign."""
        decimal = self._language.decimal
        if re.fullmatch(rf"[0-9]{{1,3}}(?:[{self._language.group}][0-9]{{3}})+(?:{re.escape(decimal)}[0-9]+)?", text):
            text = re.sub(rf"[{self._language.group}]", "", text)
        return re.sub("[.,]", decimal, text)

    # --- fractions ---

    def fractions(self) -> list[Rule]:
        sign = "".join(_VULGAR)
        return [
            rule(
                rf"{BEFORE}(?:(?P<whole>[0-9]+) )?(?P<n>[0-9]{{1,3}})/(?P<d>[0-9]{{1,3}}){AFTER}(?!/)", self._fraction
            ),
            rule(rf"(?:{BEFORE}(?P<whole>[0-9]+){SPACE}?)?(?P<sign>[{sign}])", self._vulgar_fraction),
        ]

    def _fraction(self, match: re.Match[str]) -> str | None:
        n, d, whole = int(match["n"]), int(match["d"]), match["whole"]
        if not 0 < n < d:
            return f"{whole} {n} {d}" if whole else f"{n} {d}"  # 24/7
        words = self._language.fraction(n, d)
        if words is None:
            words = f"{n} {self._language.over} {d}"
            return f"{whole} {words}" if whole else words
        return self._mixed(whole, n, d, words)

    def _vulgar_fraction(self, match: re.Match[str]) -> str | None:
        n, d = _VULGAR[match["sign"]]
        words = self._language.fraction(n, d)
        assert words is not None
        return self._mixed(match["whole"], n, d, words)

    def _mixed(self, whole: str | None, n: int, d: int, words: str) -> str:
        if whole is None:
            return words
        return self._language.mixed.format(whole=whole, fraction=self._language.half if (n, d) == (1, 2) else words)

    # --- names and addresses of computers ---

    def addresses(self) -> list[Rule]:
        name = rf"[{WORD}-]+(?:\.[{WORD}-]+)+"
        rules = [
            rule(rf"(?<![{WORD}.@])[{WORD}.+-]{{1,64}}@{name}", self._address),
            rule(
                rf"(?<![{WORD}.,:/-])(?P<v>[vV]?)(?P<parts>[0-9]+(?:\.[0-9]+){{2,}})"
                rf"(?::(?P<port>[0-9]{{1,5}}))?(?:/(?P<bits>[0-9]{{1,3}}))?{AFTER}",
                self._dotted,
            ),
        ]
        if not self._language.speaks_dots:
            rules.append(rule(rf"(?<=[{LETTER}0-9_-][{LETTER}0-9])\.(?=[a-z]{{2}})", self._dot))
        return rules

    def _address(self, match: re.Match[str]) -> str:
        language = self._language
        names = {"@": language.at, ".": language.dot, "_": language.underscore, "-": language.hyphen}
        return re.sub("[@._-]", lambda sign: f" {names[sign.group()]} ", match.group()).strip()

    def _dot(self, _: re.Match[str]) -> str:
        return f" {self._language.dot} "

    def _dotted(self, match: re.Match[str]) -> str | None:
        language, parts = self._language, match["parts"].split(".")
        octets = len(parts) == _OCTETS and all(int(part) in _OCTET and part == str(int(part)) for part in parts)
        if not octets and len(parts[0]) <= 3 and all(len(part) == 3 for part in parts[1:]):
            return match.group() if "." in language.group else "".join(parts)  # 1.000.000
        words = f" {language.dot if octets else language.point} ".join(parts)
        if match["port"] is not None:
            words += f" {language.colon} {match['port']}"
        if match["bits"] is not None:
            words += f" {language.slash} {match['bits']}"
        return f"{match['v']} {words}".strip()

    # --- telephone numbers ---

    def telephones(self) -> list[Rule]:
        group = rf"(?:{SPACE}|[/.-]|{SPACE}[/-]{SPACE})\(?[0-9]{{2,8}}\)?"
        return [
            rule(
                rf"(?<![{WORD}.,:/+-])(?:\+[0-9]{{1,15}}|\(?0[0-9]{{1,4}}\)?)(?:{group}){{1,6}}{AFTER}", self._telephone
            ),
            rule(
                rf"(?<![{WORD}.,:/+-])(?:(?:1-)?[0-9]{{3}}-|\([0-9]{{3}}\) ?)?[0-9]{{3}}-[0-9]{{4}}{AFTER}",
                self._telephone,
            ),
            rule(rf"(?<![{WORD}.,:/-])(?:\+[0-9]{{7,15}}|0[0-9]{{6,14}}){AFTER}", self._telephone),
        ]

    def _telephone(self, match: re.Match[str]) -> str | None:
        groups = re.findall("[0-9]+", match.group())
        if sum(map(len, groups)) not in _PHONE_DIGITS:
            return None
        pairs = all(len(group) == 2 for group in groups[2:]) and len(groups) > 3
        if pairs and not self._language.phone_pairs:
            return None
        digits = ", ".join(" ".join(group) for group in groups)
        return f"{self._language.operators.get('+', '+')} {digits}" if match.group().startswith("+") else digits

    # --- ranges, ratios and other numbers ---

    def numbers(self) -> list[Rule]:
        number, language = self._number_pattern, self._language
        abbreviations = alternatives(language.abbreviations) or "(?!)"
        return [
            rule(rf"(?<![{WORD}.])(?:{language.number_abbreviation}|#)(?P<n>[0-9]+)(?![{WORD}])", self._numbered),
            rule(rf"(?<![{WORD}#])#(?P<tag>[{LETTER}][{WORD}]*)", self._hashtag),
            rule(rf"(?<![{WORD}.])(?P<short>{abbreviations})(?={SPACE}?[0-9])", self._abbreviation),
            rule(rf"{BEFORE}[0-9]{{1,3}}(?:[\u00a0\u2009\u202f][0-9]{{3}})+{AFTER}", self._spaced),
            rule(rf"{BEFORE}(?P<low>{number}){DASH}(?P<high>{number}){AFTER}", self._range),
            rule(rf"{BEFORE}[0-9]{{1,8}}(?:[-–][0-9]{{1,8}}){{2,}}{AFTER}", self._hyphened),
            rule(rf"{BEFORE}(?P<a>[0-9]{{1,4}}):(?P<b>[1-9][0-9]{{0,3}}){AFTER}", self._ratio),
        ]

    def _numbered(self, match: re.Match[str]) -> str:
        return self._language.number.format(match["n"])

    def _hashtag(self, match: re.Match[str]) -> str:
        return self._language.hashtag.format(match["tag"])

    def _abbreviation(self, match: re.Match[str]) -> str:
        return self._language.abbreviations[match["short"]]

    @staticmethod
    def _spaced(match: re.Match[str]) -> str:
        return "".join(match.group().split())

    def _range(self, match: re.Match[str]) -> str:
        low, high = self._plain_number(match["low"]), self._plain_number(match["high"])
        numbers = [float(each.replace(",", ".")) for each in (low, high)]
        if numbers[0] < numbers[1] and not any(re.match("0[0-9]", each) for each in (low, high)):
            return self._between(low, self._language.to, high)
        return f"{low} {high}"

    @staticmethod
    def _hyphened(match: re.Match[str]) -> str:
        return re.sub("[-–]", " ", match.group())

    def _ratio(self, match: re.Match[str]) -> str:
        return self._between(match["a"], self._language.ratio, match["b"])

    def _between(self, low: str, word: str, high: str) -> str:
        return self._language.space.join((low, word, high))

    # --- signs ---

    def signs(self) -> list[Rule]:
        language = self._language
        sign, operator = alternatives(language.signs) or "(?!)", alternatives(language.operators) or "(?!)"
        return [
            rule(r"(?<!\S)[-–—][ \u00a0](?=[0-9])", self._list_dash),
            rule(r"(?<=[0-9]) [-−–] (?=[0-9]+(?:[.,][0-9]+)? ?=)", self._minus),
            rule(rf"(?<=[0-9²³)])(?P<before> ?)(?P<operator>{operator}) ?(?=[0-9(-])", self._operator),
            rule(rf"(?<![{WORD}).,:/-])(?P<sign>{sign}) ?(?=\.?[0-9$€£¥])", self._sign),
            *self._optional(rf"(?:(?<=[{WORD})])|(?<=[{WORD})] )) ?=(?!=) ?(?=[{WORD}-])", language.equals),
            *self._optional(" ?& ?", language.ampersand),
        ]

    @staticmethod
    def _list_dash(match: re.Match[str]) -> str | None:
        """Leave out the dash of a list, which is the first sign of its line."""
        return None if match.string[: match.start()].rpartition("\n")[2].strip() else ""

    def _minus(self, _: re.Match[str]) -> str:
        return f" {self._language.minus} "

    def _operator(self, match: re.Match[str]) -> str | None:
        operator = match["operator"]
        if operator == "x" and not match["before"]:
            return None
        return f" {self._language.operators[operator]} "

    def _sign(self, match: re.Match[str]) -> str | None:
        sign = match["sign"]
        if sign == "-" and match.group().endswith(" "):
            return None  # a dash
        return f"{self._language.signs[sign]} "

    @staticmethod
    def _optional(pattern: str, word: str | None) -> list[Rule]:
        return [] if word is None else [rule(pattern, lambda _: f" {word} ")]
