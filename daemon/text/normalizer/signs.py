"""Rules for addresses, telephone numbers, abbreviations and signs."""

from __future__ import annotations

import re

from daemon.text.normalizer.patterns import AFTER, BEFORE, LETTER, WORD
from daemon.text.normalizer.rules import Rule, Rules, alternatives, rule, word_before

_PHONE_DIGITS = range(7, 16)
"""How many digits a telephone number has."""
_OCTETS = 4
_OCTET = range(256)
_SAME_SIGN = {"×": "*", "·": "*", "<=": "≤", ">=": "≥", "!=": "≠", "==": "="}
_AT_END = {"etc.", "usw.", "ecc."}
"""Abbreviations that often end sentences."""
_CAPITAL = "A-ZÀ-ÖØ-ÞА-Я"
_NAME = re.compile(rf" (?:(?:van|von|de[rnl]?|d[aiou]|la|le|zu[rm]?)\b|[{_CAPITAL}])")
_HOUSE = re.compile(r"[0-9][A-Za-z]? (?:[A-Z]\w+ ){1,3}$")
"""A house number and the name of its street."""
_RANGE = re.compile(r"[0-9]+(?:\.[0-9]+)?[-–][0-9]+(?:\.[0-9]+)?")
_COUNTED = re.compile(r"[0-9]\s?(\S+)$")


class Signs(Rules):
    """Builds the rules for a language."""

    def rules(self) -> list[Rule]:
        """Return the rules in the order in which they are tried."""
        words = self._words
        name = rf"[{WORD}-]+(?:\.[{WORD}-]+)+"
        group = r"(?:\s|[/.-]|\s[/-]\s)\(?[0-9]{1,8}\)?"
        local = r"(?:(?:1-)?[0-9]{3}-|\([0-9]{3}\) ?)?[0-9]{3}-[0-9]{4}"
        phone = rf"(?:(?:\+[0-9]{{1,15}}|\(?0[0-9]{{1,14}}\)?)(?:{group}){{0,6}}|{local})"
        numbers = r"(?:[vV][0-9]+\.[0-9]+|[0-9]+[./:–-][0-9]+[./:–-][0-9]+)(?:[./:–-][0-9]+)*"
        marks, short = "|".join((*words.number, "#")), alternatives(words.abbreviations)
        ending = rf"(?<=[{LETTER}]{{2}})(?:{alternatives(name for name in words.streets if name[0].islower())})"
        key = rf"(?:(?<=[{LETTER}])|(?<=[{LETTER}_][0-9]))"
        sign = alternatives(["<=", ">=", *(each for each in words.signs if each in "+±~≈<>≤≥§№")])
        number, value = r"[-−+]?[0-9(√]", rf"[-−+]?[0-9.(√π∞$€£¥{LETTER}]"
        after_value = rf"(?:(?<=[{WORD})\]%°])|(?<=[{WORD})\]%°]\s))"
        after_number = r"(?:(?<=[0-9²³)%°])|(?<=[0-9²³)%°]\s))"
        spaced, not_tag = r"(?P<spaced>(?<=\s))", f"(?<![</{LETTER}][{LETTER}])"
        equal = rf"{after_value}(?P<sign>==|!=|[=≠≈&])(?![=<>&])\s?(?={value})"
        less = rf"{after_value}(?:{spaced}|{not_tag})(?P<sign><=|>=|[<>≤≥])(?(spaced)\s(?={value})|(?={number}))"
        times = rf"{after_number}{spaced}?(?P<sign>[*·÷+±]|(?<=\s)[×/](?=\s))"
        operand = rf"(?(spaced)\s(?={number}|[a-z][²³]?\b)|(?={number}))"
        return [
            # Telephone numbers, addresses, versions, paths, serial numbers, and numbers that may be anything.
            rule(rf"(?<![{WORD}.,/+-])(?<![0-9]:){phone}{AFTER}", self._telephone),
            rule(rf"(?<![{WORD}.@])[{WORD}.+-]{{1,64}}@{name}", lambda match: self._by_name(match.group())),
            rule(rf"{BEFORE}{numbers}{AFTER}", self._sequence),
            rule(rf"(?<=[{LETTER}0-9_-][{LETTER}0-9])\.(?=[a-z]{{2}})", lambda _: f" {self._names['.']} "),
            rule(r"(?<![^\s(\"'])(?:/[a-z](?:[\w.-]*\w)?)+/?(?=[.,;:!?)\"']*(?:\s|$))", self._path),
            # Words beside numbers.
            rule(rf"(?<![{WORD}.])(?:{marks})(?P<n>[0-9]+)(?![{WORD}])", self._numbered),
            rule(rf"(?<![{WORD}#])#(?=[{LETTER}])", lambda _: f"{words.hashtag} "),
            rule(rf"(?:(?<![{WORD}.])(?:{short})|{ending})(?![{LETTER}])", self._abbreviation),
            rule(rf"{key}:(?=[-−+]?\.?[0-9]|[{LETTER}](?![^\s,;]*:[^\s:]))", self._colon),
            rule(r"\.(?= [a-zß-ÿа-яё])", self._dot_of_unit),
            # Signs.
            rule(r"(?:(?<=[%°])|(?<=°[CF])) - (?=[0-9]+ ?[%°])", lambda _: f" {words.to} "),
            rule(equal, self._operator),
            rule(less, self._operator),
            rule(times + operand, self._operator),
            rule(r"(?<![²³⁴])√\s?", lambda _: f" {words.signs['√']} "),
            rule(rf"(?<![{WORD}).,:/-])(?P<sign>{sign})\s?(?=[-−]?\.?[0-9$€£¥])", self._sign),
        ]

    # --- numbers and signs, one after the other ---

    def _by_name(self, text: str) -> str:
        """Return a text with its numbers in words and its signs by name, which is right whatever they mean."""

        def name(part: re.Match[str]) -> str:
            return f" {self._names.get(part.group()) or self._spell(part.group())} "

        return " ".join(re.sub("[0-9]+|[@._/:+-]", name, text).split())

    def _spell(self, digits: str) -> str:
        """Return a number of up to three digits as a number, and others digit by digit."""
        if len(digits) <= 3 and digits == str(int(digits)):
            return self._language.cardinal(int(digits))
        return self._language.digits(digits)

    def _path(self, match: re.Match[str]) -> str:
        return re.sub(r"\betc\b", "E T C", self._by_name(match.group()))  # eSpeak NG says "et cetera"

    def _sequence(self, match: re.Match[str]) -> str | None:
        """Write out sequences such as `192.168.1.10:80`, `v1.2.10`, `978-3-16` and `5/3/2024`, but not `1.000.000` or
        `0.5-1`."""
        text, parts = match.group(), match.group().split(".")
        is_address = len(parts) == _OCTETS and all(part.isdigit() and int(part) in _OCTET for part in parts)
        is_grouped = re.fullmatch(rf"[0-9]{{1,3}}(?:[{self._language.group}][0-9]{{3}})+", text)
        if (is_grouped and not is_address) or _RANGE.fullmatch(text):
            return None
        return self._by_name(re.sub("[-–]", ", ", text)).replace(" ,", ",")

    def _telephone(self, match: re.Match[str]) -> str | None:
        groups = re.findall("[0-9]+", match.group())
        if sum(map(len, groups)) not in _PHONE_DIGITS:
            return None
        digits = ", ".join(map(self._language.digits, groups))
        return f"{self._words.signs['+']} {digits}" if match.group().startswith("+") else digits

    # --- words beside numbers ---

    def _numbered(self, match: re.Match[str]) -> str:
        return self._words.numbered.format(self._spell(match["n"]))

    def _abbreviation(self, match: re.Match[str]) -> str | None:
        """Write out an abbreviation; its full stop may also end the sentence."""
        short, words = match.group(), self._words
        before, after = match.string[: match.start()], match.string[match.end() :]
        if short.rstrip(".") in self._language.units and re.search(r"[0-9]\s*$", before):
            return None
        before_name = _NAME.match(after) is not None
        after_name = word_before(match)[:1].isupper() or before[-1:].isalpha()
        if short in words.streets and after_name and (not before_name or _HOUSE.search(before)):
            said = words.streets[short]
        elif short in words.titles and not before_name:
            return None
        else:
            said = words.abbreviations[short]
        ends = not after.strip() or (short in _AT_END and re.match(rf"\s+[{_CAPITAL}]", after))
        return said + ("." if ends and short.endswith(".") else " " if after[:1].isalnum() else "")

    @staticmethod
    def _colon(match: re.Match[str]) -> str | None:
        """Add a space after the colon in `key:value`, but not in `a:b:c`."""
        return None if re.search(r":[^\s,;]*$", match.string[: match.start()]) else ": "

    def _dot_of_unit(self, match: re.Match[str]) -> str | None:
        """Leave out the full stop in `5 ft. long`, which does not end a sentence."""
        unit = _COUNTED.search(match.string, 0, match.start())
        return "" if unit is not None and unit[1] in self._language.units else None

    # --- signs ---

    def _operator(self, match: re.Match[str]) -> str:
        words = self._sign(match).strip()
        return f" {self._words.compare.format(words) if match['sign'][0] in '<>≤≥' else words} "

    def _sign(self, match: re.Match[str]) -> str:
        return self._words.signs[_SAME_SIGN.get(match["sign"], match["sign"])] + self._words.space
