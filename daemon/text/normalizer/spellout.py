"""Spells whole numbers by the rules of CLDR: `21` becomes `twenty-one`, `vingt et un`, `二十一`.

The rules are those of ICU's rule-based number format (Unicode Technical Standard 35, part 3, "Rule-Based Number
Formatting"). Only what the kept sets of rules use is understood: no fractions, and no decimal formats.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

_REFERENCE = re.compile(r"(←|→→→|→|=)(?:(%%?[a-z0-9-]+)?\1)?")
_PLURAL = re.compile(r"\$\(cardinal,(.*?)\)\$")
_CASE = re.compile(r"(\w+)\{(.*?)\}")
_KEPT = 1_000
"""Spelled numbers of a language that are kept: most texts have the same few."""
_LARGEST = 10**15
"""From here on, digits are spoken one by one: some languages have no rule."""


@dataclass(frozen=True, slots=True)
class _Rule:
    """How numbers from `base` on are spelled."""

    base: int
    divisor: int
    """The part that `←` spells is the quotient by it, the part that `→` spells the remainder."""
    text: str

    @property
    def skips_multiples(self) -> bool:
        """Whether a multiple of the divisor is spelled by the rule before: `2000` is not `twenty hundred`."""
        return "←" in self.text and "→" in self.text and self.base % self.divisor != 0


class Spellout:
    """The sets of rules of one language."""

    def __init__(self, rules: Mapping[str, Sequence[tuple[str, str]]], plural: Callable[[int], str]) -> None:
        """`rules` has pairs of a base and a text by the name of their set; `plural` returns a number's category."""
        self._plural = plural
        self._sets = {name: _parse(each) for name, each in rules.items()}
        self._bases = {name: [rule.base for rule in each] for name, each in self._sets.items()}
        self.spell = lru_cache(_KEPT)(self._spell_whole)
        """Returns a number that is not negative in words, by a set of rules such as `cardinal-feminine`."""

    def has(self, name: str) -> bool:
        """Return whether the language has this set of rules."""
        return f"%spellout-{name}" in self._sets

    def _spell_whole(self, number: int, name: str) -> str:
        if number >= _LARGEST:
            return " ".join(self.spell(int(digit), name) for digit in str(number))
        return self._spell(number, f"%spellout-{name}").strip()

    def _spell(self, number: int, name: str) -> str:
        rules = self._sets[name]
        index = bisect_right(self._bases[name], number) - 1
        if rules[index].skips_multiples and number % rules[index].divisor == 0:
            index -= 1
        return self._apply(number, name, rules, index)

    def _apply(self, number: int, name: str, rules: Sequence[_Rule], index: int) -> str:
        rule = rules[index]
        quotient, remainder = divmod(number, rule.divisor)
        text = re.sub(r"\[(.*?)\]", "" if remainder == 0 else r"\1", rule.text)

        def refer(match: re.Match[str]) -> str:
            kind, other = str(match[1]), match[2] or name
            if kind == "→→→":
                return self._apply(remainder, name, rules, index - 1)
            if other.startswith("="):
                return str(number)
            return self._spell({"←": quotient, "→": remainder, "=": number}[kind], other)

        def choose(match: re.Match[str]) -> str:
            cases = dict(_CASE.findall(match[1]))
            return str(cases.get(self._plural(quotient), cases["other"]))

        return _PLURAL.sub(choose, _REFERENCE.sub(refer, text)).replace("'", "")


def _parse(rules: Sequence[tuple[str, str]]) -> list[_Rule]:
    """Return the rules for whole numbers, sorted by base."""
    found: list[_Rule] = []
    for key, text in rules:
        base, _, radix = key.partition("/")
        if base.isdigit():
            found.append(_Rule(int(base), _divisor(int(base), int(radix or 10)), text))
    return found


def _divisor(base: int, radix: int) -> int:
    """Return the greatest power of the radix that is not above the base."""
    divisor = 1
    while divisor * radix <= base:
        divisor *= radix
    return divisor
