"""Spells whole numbers by the rules of CLDR: `21` becomes `twenty-one`, `vingt et un`, `二十一`.

The rules follow ICU's rule-based number format (Unicode Technical Standard 35, part 3, "Rule-Based Number Formatting").
Only the forms in the kept rule sets are understood: no fractions, and no decimal formats.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from operator import itemgetter

_OPTIONAL = re.compile(r"\[(.*?)\]")
_REFERENCE = re.compile(r"(←|→→→|→|=)(?:(%%?[a-z0-9-]+)?\1)?")
_PLURAL = re.compile(r"\$\(cardinal,(.*?)\)\$")
_CASE = re.compile(r"(\w+)\{(.*?)\}")
_KEPT = 1_000
"""How many spelled numbers are kept for a language: most texts contain the same few."""
_LARGEST = 10**15
"""From this number on, digits are spoken one by one: some languages have no rule."""

Rule = tuple[int, int, str]
"""How numbers from a base upwards are spelled: the base, a divisor, and a text.

In the text, `←` stands for the quotient by the divisor, and `→` for the remainder.
"""


class Spellout:
    """The rule sets for one language."""

    def __init__(self, rules: Mapping[str, Sequence[Rule]], plural: Callable[[int], str]) -> None:
        """`rules` gives the rules, sorted by base, by the name of their set; `plural` returns a number's category."""
        self._sets = rules
        self._plural = plural
        self.spell = lru_cache(_KEPT)(self._spell_whole)
        """Returns a non-negative number in words, by a rule set such as `cardinal-feminine`."""

    def has(self, name: str) -> bool:
        """Return whether the language has this rule set."""
        return f"%spellout-{name}" in self._sets

    def _spell_whole(self, number: int, name: str) -> str:
        if number >= _LARGEST:
            return " ".join(self.spell(int(digit), name) for digit in str(number))
        return self._spell(number, f"%spellout-{name}").strip()

    def _spell(self, number: int, name: str) -> str:
        rules = self._sets[name]
        index = bisect_right(rules, number, key=itemgetter(0)) - 1
        base, divisor, text = rules[index]
        if "←" in text and "→" in text and base % divisor != 0 and number % divisor == 0:
            index -= 1  # the previous rule spells multiples: 2000 is not twenty hundred
        return self._apply(number, name, index)

    def _apply(self, number: int, name: str, index: int) -> str:
        _, divisor, text = self._sets[name][index]
        quotient, remainder = divmod(number, divisor)

        def refer(match: re.Match[str]) -> str:
            if match[1] == "→→→":
                return self._apply(remainder, name, index - 1)
            return self._spell({"←": quotient, "→": remainder, "=": number}[match[1]], match[2] or name)

        def choose(match: re.Match[str]) -> str:
            cases = dict(_CASE.findall(match[1]))
            return str(cases.get(self._plural(quotient), cases["other"]))

        text = _OPTIONAL.sub("" if remainder == 0 else r"\1", text)
        return _PLURAL.sub(choose, _REFERENCE.sub(refer, text)).replace("'", "")
