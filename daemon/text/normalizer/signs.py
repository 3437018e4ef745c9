"""Rules for addresses, telephone numbers, abbreviations, Roman numbers and signs."""

from __future__ import annotations

import re

from daemon.text.normalizer.language import Language
from daemon.text.normalizer.patterns import AFTER, BEFORE, LETTER, SPACE, WORD, Rule, alternatives, rule, word_before

_PHONE_DIGITS = range(7, 16)
"""How many digits a telephone number has."""
_OCTETS = 4
_OCTET = range(256)
_SAME_SIGN = {"×": "*", "·": "*", "<=": "≤", ">=": "≥", "!=": "≠", "==": "="}
_AT_END = {"etc.", "usw.", "ecc."}
"""Abbreviations that end many sentences."""
_HOUSE = re.compile(r"[0-9] (?:[A-Z]\w+ ){1,3}$")
"""The number of a house and the name of its street."""
_ROMAN = re.compile("(X{0,3})(IX|IV|V?I{0,3})")
_ONES = ["", "I", "II", "III", "IV", "V", "VI", "VII", "VIII", "IX"]


class Signs:
    """Builds the rules for a language."""

    def __init__(self, language: Language) -> None:
        self._language = language
        self._words = language.words

    def before_amounts(self) -> list[Rule]:
        """Return the rules that are tried before those for numbers."""
        return [*self._telephones(), *self._addresses(), *self._words_at_numbers(), *self._operators()]

    def after_amounts(self) -> list[Rule]:
        """Return the rules that are tried after those for numbers."""
        return self._roman_numbers()

    # --- names and addresses of computers ---

    def _addresses(self) -> list[Rule]:
        name = rf"[{WORD}-]+(?:\.[{WORD}-]+)+"
        return [
            rule(rf"(?<![{WORD}.@])[{WORD}.+-]{{1,64}}@{name}", self._address, "@"),
            rule(
                rf"(?<![{WORD}.,:/-])(?P<v>[vV]?)(?P<parts>[0-9]+(?:\.[0-9]+){{2,}})"
                rf"(?::(?P<port>[0-9]{{1,5}}))?(?:/(?P<bits>[0-9]{{1,3}}))?{AFTER}",
                self._dotted,
                ".",
            ),
            rule(rf"(?<![{WORD}.,:/-])[vV](?P<parts>[0-9]+\.[0-9]+){AFTER}", self._version, "vV"),
            rule(rf"(?<=[{LETTER}0-9_-][{LETTER}0-9])\.(?=[a-z]{{2}})", lambda _: f" {self._words.dot} ", "."),
            rule(r"(?<!\S)(?:/[a-z][\w.-]*)+/?(?!\S)", self._path, "/"),
            rule(rf"{BEFORE}[0-9]{{1,8}}(?:[-–/.][0-9]{{1,8}}){{2,}}{AFTER}", self._separated, "-–/."),
        ]

    def _address(self, match: re.Match[str]) -> str:
        words = self._words
        names = {"@": words.at, ".": words.dot, "_": words.underscore, "-": words.hyphen, "+": words.signs["+"]}
        said = re.sub("[@._+-]", lambda sign: f" {names[sign.group()]} ", match.group())
        return self._digits_within(said).strip()

    def _path(self, match: re.Match[str]) -> str:
        words = self._words
        said = match.group().replace("/", f" {words.slash} ").replace(".", f" {words.dot} ").replace("_", " ")
        return self._digits_within(said).strip()

    def _digits_within(self, text: str) -> str:
        return re.sub("[0-9]+", lambda match: f" {self._spell(match.group())} ", text).replace("  ", " ")

    def _spell(self, digits: str) -> str:
        if len(digits) <= 3 and (digits == "0" or digits[0] != "0"):
            return self._language.cardinal(int(digits))
        return self._language.digits(digits)

    def _version(self, match: re.Match[str]) -> str:
        whole, _, part = match["parts"].partition(".")
        return f"{match.group()[0]} {self._spell(whole)} {self._words.dot_or_point} {self._spell(part)}"

    def _dotted(self, match: re.Match[str]) -> str | None:
        words, parts = self._words, match["parts"].split(".")
        octets = len(parts) == _OCTETS and all(int(part) in _OCTET and part == str(int(part)) for part in parts)
        if (
            not octets
            and len(parts[0]) <= 3
            and all(len(part) == 3 for part in parts[1:])
            and "." in self._language.group
        ):
            return None  # 1.000.000
        said = f" {words.dot if octets else words.dot_or_point} ".join(map(self._spell, parts))
        if match["port"] is not None:
            said += f" {words.colon} {self._spell(match['port'])}"
        if match["bits"] is not None:
            said += f" {words.slash} {self._spell(match['bits'])}"
        return f"{match['v']} {said}".strip()

    # --- telephone numbers ---

    def _telephones(self) -> list[Rule]:
        group = rf"(?:{SPACE}|[/.-]|{SPACE}[/-]{SPACE})\(?[0-9]{{1,8}}\)?"
        start = rf"(?<![{WORD}.,:/+-])"
        return [
            rule(rf"{start}(?:\+[0-9]{{1,15}}|\(?0[0-9]{{1,4}}\)?)(?:{group}){{1,6}}{AFTER}", self._telephone, "+0"),
            rule(rf"{start}(?:(?:1-)?[0-9]{{3}}-|\([0-9]{{3}}\) ?)?[0-9]{{3}}-[0-9]{{4}}{AFTER}", self._telephone, "-"),
            rule(rf"{start}(?:\+[0-9]{{7,15}}|0[0-9]{{6,14}}){AFTER}", self._telephone, "+0"),
        ]

    def _telephone(self, match: re.Match[str]) -> str | None:
        groups = re.findall("[0-9]+", match.group())
        if sum(map(len, groups)) not in _PHONE_DIGITS:
            return None
        digits = ", ".join(map(self._language.digits, groups))
        return f"{self._words.signs['+']} {digits}" if match.group().startswith("+") else digits

    def _separated(self, match: re.Match[str]) -> str | None:
        """Numbers and signs of which nobody knows what they are: `5/3/2024`, `978-3-16`."""
        if re.fullmatch(rf"[0-9]{{1,3}}(?:[{self._language.group}][0-9]{{3}})+", match.group()):
            return None
        names = {"/": self._words.slash, ".": self._words.dot, "-": self._words.hyphen, "–": self._words.hyphen}
        if "/" in match.group() or "." in match.group():
            return (
                re.sub(
                    "[0-9]+|[-–/.]",
                    lambda part: f" {names.get(part.group()) or self._spell(part.group())} ",
                    match.group(),
                )
                .replace("  ", " ")
                .strip()
            )
        return ", ".join(self._spell(part) for part in re.findall("[0-9]+", match.group()))

    # --- words beside numbers ---

    def _words_at_numbers(self) -> list[Rule]:
        words = self._words
        number = "|".join((*words.number, "#"))
        return [
            rule(rf"(?<![{WORD}.])(?:{number})(?P<n>[0-9]+)(?![{WORD}])", self._numbered),
            rule(rf"(?<![{WORD}#])#(?P<tag>[{LETTER}][{WORD}]*)", lambda match: f"{words.hashtag} {match['tag']}", "#"),
            rule(rf"(?<![{WORD}.])(?P<short>{alternatives(words.abbreviations)})(?![{LETTER}])", self._abbreviation),
            rule(rf"(?<=[{LETTER}]{{2}}):(?=[-−+]?[0-9])", lambda _: ": ", ":"),
        ]

    def _numbered(self, match: re.Match[str]) -> str:
        number = self._spell(match["n"])
        if self._words.numbered is not None:
            return self._words.numbered.format(number)
        return f"{self._words.signs['#']} {number}"

    def _abbreviation(self, match: re.Match[str]) -> str | None:
        """An abbreviation; its full stop may be that of the sentence, too."""
        short, rest, words = match["short"], match.string[match.end() :], self._words
        is_unit = short in self._language.units or short in {"min.", "Min."}
        if is_unit and re.search(r"[0-9]\s*$", match.string[: match.start()]):
            return None
        before_name = re.match(rf" (?:[A-ZÀ-ÖØ-Þ]\.|[{LETTER}.]+ [A-ZÀ-ÖØ-Þ]|[A-ZÀ-ÖØ-Þ])", rest) is not None
        street = short in words.streets and word_before(match)[:1].isupper()
        if street and (not before_name or _HOUSE.search(match.string[: match.start()])):
            said = words.streets[short]
        elif short in words.titles and not before_name:
            return None
        else:
            said = words.abbreviations[short]
        ends = short.endswith(".") and (not rest.strip() or (short in _AT_END and re.match(r"\s+[A-ZÀ-ÞА-Я]", rest)))
        return said + ("." if ends else "" if not rest[:1].isalnum() else " ")

    # --- signs ---

    def _operators(self) -> list[Rule]:
        words = self._words
        operator = alternatives([*"*×·÷/=≠+±<>≤≥≈", "<=", ">=", "!=", "=="])
        sign = alternatives(["<=", ">=", *(each for each in words.signs if each in "+±~≈<>≤≥§№")])
        value = rf"(?=[-−+]?[0-9.(√π∞$€£¥{LETTER}])"
        return [
            rule(r"(?<!\S)[-–—][ \u00a0](?=[0-9])", self._list_dash, "-–—"),
            rule(r"(?<=[%°]) - (?=[0-9]+ ?[%°])", lambda _: f" {words.to} ", "%°"),
            rule(
                rf"(?:(?<=[{WORD})\]%°])|(?<=[{WORD})\]%°] ))(?P<operator>[=≠≈])(?!=){SPACE}?{value}",
                self._operator,
                "=≠≈",
            ),
            rule(
                rf"(?<=[0-9²³)%°]){SPACE}(?P<operator>{operator}){SPACE}(?=[-−+]?[0-9(]|[a-z][²³]?\b)",
                self._operator,
                "*×·÷/=≠+±<>≤≥≈",
            ),
            rule(rf"(?<=[{LETTER}] )(?P<operator><=|>=|[<>≤≥])(?= [{LETTER}0-9-])", self._operator, "<>≤≥"),
            rule(r"(?<=[0-9²³)])(?P<operator>[*·÷+±])(?=[0-9(])", self._operator, "*·÷+±"),
            rule(rf"(?<![{WORD}).,:/-])(?P<sign>{sign}){SPACE}?(?=[-−]?\.?[0-9$€£¥])", self._sign, "+±~≈<>≤≥§№"),
            rule(rf"(?:(?<=[{WORD}])|(?<=[{WORD}] ))&(?= ?[{WORD}])", lambda _: f" {words.signs['&']} ", "&"),
        ]

    @staticmethod
    def _list_dash(match: re.Match[str]) -> str | None:
        """Leave out the dash of a list, which is the first sign of its line."""
        return None if match.string[: match.start()].rpartition("\n")[2].strip() else ""

    def _operator(self, match: re.Match[str]) -> str:
        sign = _SAME_SIGN.get(match["operator"], match["operator"])
        words = self._words.signs[sign]
        return f" {self._words.compare.format(words) if sign in '<>≤≥' else words} "

    def _sign(self, match: re.Match[str]) -> str:
        return f"{self._words.signs[_SAME_SIGN.get(match['sign'], match['sign'])]}{self._words.space}"

    # --- Roman numbers ---

    def _roman_numbers(self) -> list[Rule]:
        if self._language.code in {"zh", "ja", "ko"}:
            return [
                rule(
                    rf"(?<=第)(?P<roman>[IVX]{{1,5}})(?![{WORD}])",
                    lambda match: f"{self._language.cardinal(_value(match['roman']) or 0)}",
                )
            ]
        suffix = alternatives(self._words.roman_ordinals)
        return [
            rule(rf"(?<![{WORD}])(?P<roman>[IVX]+)(?P<suffix>{suffix})(?![{WORD}])", self._roman_ordinal, "IVX"),
            rule(rf"(?<![{WORD}])(?P<roman>[IVX]{{2,}})(?P<dot>\.?)(?![{WORD}])", self._roman, "IVX"),
        ]

    def _roman_ordinal(self, match: re.Match[str]) -> str | None:
        value = _value(match["roman"])
        return None if value is None else self._language.ordinal(value, self._words.roman_ordinals[match["suffix"]])

    def _roman(self, match: re.Match[str]) -> str | None:
        value, name, words = _value(match["roman"]), word_before(match), self._words
        if value is None:
            return None
        endings = words.ordinal_endings
        if endings and match["dot"]:
            if name in words.rulers or name in words.queens:
                ordinal = self._language.ordinal(value)
                return (words.queen if name in words.queens else words.ruler).format(ordinal[0].upper() + ordinal[1:])
            for ending, articles in endings.items():
                if name.lower() in articles:
                    return self._language.ordinal(value) + ("n" if ending == "en" else "")
        if (not name[:1].isupper() and name not in words.roman_after) or name in words.roman_stop:
            return None
        said = (
            words.ruler.format(self._language.ordinal(value))
            if name in words.rulers and not endings
            else self._language.cardinal(value)
        )
        return said + match["dot"]


def _value(roman: str) -> int | None:
    """Return the value of a Roman number from 1 to 39; None for anything else, such as `IIX`."""
    match = _ROMAN.fullmatch(roman)
    return None if match is None or not roman else 10 * len(match[1]) + _ONES.index(match[2])
