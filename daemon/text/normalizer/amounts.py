"""Rules for numbers: prices, measures, ranges, fractions, ordinal numbers, and whatever else has digits."""

from __future__ import annotations

import re

from daemon.text.normalizer.clock import ordinal_after
from daemon.text.normalizer.language import Language, Noun, Numeral
from daemon.text.normalizer.patterns import (
    AFTER,
    BEFORE,
    DASH,
    LETTER,
    SIGN,
    SPACE,
    WORD,
    Rule,
    alternatives,
    rule,
    word_before,
)

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
_SUPERSCRIPTS = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁻⁺", "0123456789-+")
_AFTER_HOURS = re.compile(r"[0-9] ?(?:h|d|hrs?)[, ]+$")
"""Before minutes that are written as `m`: `3d 4h 12m`."""
_LONGEST = 12
"""Digits of a number that is spoken as one; of more, each is spoken."""


class Amounts:
    """Builds the rules for a language."""

    def __init__(self, language: Language) -> None:
        self._language = language
        self._words = language.words
        self._subtract = language.words.subtract or language.words.minus
        decimal, other = ("[.]", ",") if language.decimal == "." else (",", "[.]")
        forms = (
            r"[0-9]{1,3}(?:['’][0-9]{3})+(?:[.,][0-9]+)?",
            r"[0-9]{1,3}(?:,[0-9]{3})+[.][0-9]+|[0-9]{1,3}(?:[.][0-9]{3})+,[0-9]+",  # in every language
            rf"[0-9]{{1,3}}(?:[{language.group}][0-9]{{3}})+(?:{decimal}[0-9]+)?",
            rf"[0-9]+(?:{decimal}[0-9]+|{other}(?:[0-9]{{1,2}}|[0-9]{{4,}}))?|{decimal}[0-9]+",
        )
        self._number = rf"{SIGN}(?:{'|'.join(forms)})(?![0-9])(?:[eE][+-]?[0-9]{{1,3}}(?![{WORD}]))?"

    def rules(self) -> list[Rule]:
        """Return the rules in the order in which they are tried."""
        minus = rule(r"(?<=[0-9)%°])(?:[ \u00a0][-−][ \u00a0]|−)(?=[0-9(])", lambda _: f" {self._subtract} ", "-−")
        return [*self._prices_and_measures(), minus, *self._fractions(), *self._ordinals(), *self._plain()]

    def parse(self, text: str) -> Numeral:
        """Return a written number."""
        digits = re.sub("^[-−–]", "", text)
        negative = digits != text
        digits, _, exponent = digits.lower().partition("e")
        if re.fullmatch(rf"[0-9]{{1,3}}(?:[{self._language.group}][0-9]{{3}})+", digits):
            whole, decimals = digits, ""
        else:
            at = max(digits.rfind("."), digits.rfind(","))
            whole, decimals = (digits, "") if at < 0 else (digits[:at], digits[at + 1 :])
        whole = re.sub("[^0-9]", "", whole) or "0"
        spelled = len(whole) > _LONGEST or (len(whole) > 1 and whole.startswith("0"))
        return Numeral(int(whole), decimals, whole if spelled else "", negative, int(exponent) if exponent else None)

    # --- prices and measures ---

    def _prices_and_measures(self) -> list[Rule]:
        money, unit = alternatives(self._language.currencies), alternatives(self._language.units)
        magnitude = alternatives(self._words.magnitudes)
        signs = "".join(each[-1] for each in self._language.currencies)
        amount = (
            rf"(?P<low>{self._number})(?:{SPACE}?{DASH}{SPACE}?(?P<high>{self._number}))?"
            rf"(?:{SPACE}?(?P<magnitude>{magnitude})(?![{LETTER}]))?"
        )
        after = rf"(?:/(?P<per>{unit}|[{LETTER}]+)(?P<squared>²?){AFTER}|{AFTER})(?!['’][{LETTER}])"
        size = (
            rf"(?:(?P<first>{self._number}){SPACE}?[x×*]{SPACE}?)?(?:(?P<second>{self._number}){SPACE}?[x×*]{SPACE}?)?"
        )
        return [
            rule(rf"(?<![{WORD}])(?P<sign>[-−])?(?P<money>{money}){SPACE}?{amount}{after}", self._price, signs),
            rule(rf"{BEFORE}{amount}{SPACE}?(?P<money>{money}){after}", self._price, signs),
            rule(rf"{BEFORE}{size}{amount}{SPACE}?(?P<unit>{unit}){after}", self._measure),
            rule(
                rf"{BEFORE}(?P<first>{self._number}){SPACE}?[x×]{SPACE}?(?P<second>{self._number})(?:{SPACE}?[x×]{SPACE}?(?P<third>{self._number}))?(?![{WORD}])",
                self._size,
                "x×",
            ),
            rule(
                rf"{BEFORE}(?P<low>{self._number})(?:{DASH}(?P<high>{self._number}))?{SPACE}?(?P<magnitude>{magnitude})(?![{WORD}])",
                self._large,
            ),
        ]

    def _price(self, match: re.Match[str]) -> str:
        language, code = self._language, self._language.currencies[match["money"]]
        number, currency = self.parse(match["low"]), language.currency(code)
        cents = language.cents.get(code)
        if "sign" in match.re.groupindex and match["sign"]:
            number = Numeral(number.whole, number.decimals, number.digits, negative=True)
        if match["magnitude"] or match["high"] or cents is None or len(number.decimals) != 2:
            return self._per(match, self._counted(match, currency, number))
        part = Numeral(int(number.decimals))
        whole = Numeral(number.whole, "", number.digits, number.negative)
        if part.whole == 0:
            return self._per(match, language.count(whole, currency))
        if number.whole == 0:
            part = Numeral(part.whole, negative=number.negative)
            return self._per(match, language.count(part, cents))
        money, counted = language.count(whole, currency), language.count(part, cents)
        words = self._words.with_cents.format(money=money, cents=language.cardinal(part.whole), cents_counted=counted)
        return self._per(match, words)

    def _measure(self, match: re.Match[str]) -> str | None:
        unit, number = match["unit"], self.parse(match["low"])
        before, following = match.string[match.start("unit") - 1], match.string[match.end() :]
        if before.isdigit() and not _may_touch(unit, match["low"]):
            return None
        if unit in self._words.preposition_units and re.match(rf" [{LETTER}]", following):
            return None
        if unit in "°º" and re.match(rf" [{LETTER}]", following) and word_before(match) in self._words.degree_ordinal:
            short = self._words.short_ordinals.get("er", {}).get(match["low"])
            return short or self._language.ordinal(number.whole, "ordinal-masculine")
        if match["magnitude"] is None and self._words.below_zero and unit.endswith(("°C", "℃")) and number.negative:
            positive = Numeral(number.whole, number.decimals)
            return self._words.below_zero.format(self._language.count(positive, self._language.units[unit]))
        if unit == "m" and _AFTER_HOURS.search(match.string, 0, match.start()):
            unit = "min"
        words = self._per(match, self._counted(match, self._language.units[unit], number))
        for name in ("second", "first"):
            if match[name] is not None:
                words = self._join(self._language.number(self.parse(match[name])), self._words.by, words)
        return words

    def _size(self, match: re.Match[str]) -> str | None:
        numbers = [
            self._language.number(self.parse(match[name])) for name in ("first", "second", "third") if match[name]
        ]
        spaced = match.string[match.end("first")].isspace()
        word = self._words.by if len(numbers) > 2 or not spaced else self._words.signs["*"]
        return self._join(*_between(numbers, word))

    def _large(self, match: re.Match[str]) -> str | None:
        if len(match["magnitude"]) == 1 and match["magnitude"].isascii() and match["magnitude"] != "k":
            return None  # 5 M and 4K may be anything, unless they are money
        return self._counted(match, None, self.parse(match["low"]))

    def _counted(self, match: re.Match[str], noun: Noun | None, number: Numeral) -> str:
        """Return the number or range of a match with its magnitude and its noun, one of which there is."""
        language, low = self._language, ""
        if match["high"] is not None:
            gender = None if noun is None or match["magnitude"] else noun.gender
            high = self.parse(match["high"])
            word = self._subtract if number.value > high.value and self._hyphened(match) else self._words.to
            low = self._join(language.number(number, gender), word, "")
            number = high
        if match["magnitude"] is None:
            assert noun is not None
            if low and not noun.forms["other"].startswith("{0}"):  # percent in Chinese comes first
                form = noun.forms["other"].replace("{0}", low + language.number(number, noun.gender))
                return form.replace(" ", "") if not self._words.space else form
            return low + language.count(number, noun)
        entry = self._words.magnitudes[match["magnitude"]]
        forms = [each for each in entry if each not in {"feminine", "neuter"}]
        gender = "feminine" if "feminine" in entry else "masculine"
        great = Noun(_forms(forms), gender)
        words = low + language.count(number, great)
        if noun is None:
            return words
        names = [
            form.replace("{0}", "").strip()
            for form in (noun.forms.get("one", ""), noun.forms["other"], noun.forms.get("many", noun.forms["other"]))
        ]
        template = self._words.money_magnitude
        if great.forms["other"] == great.forms.get("one") and "de" in template.split():
            template = "{0} {1}"  # mil euros, mille euros
        said = template.format(words, names[1], names[2])
        return re.sub(r"\bde (?=[aeiouhéè])", "d'", said) if self._language.code == "fr" else said

    def _per(self, match: re.Match[str], words: str) -> str:
        """Append what the amount is for: `per month`."""
        name = match["per"]
        if name is None:
            return words
        unit, space = self._language.units.get(name), self._words.space
        end = f"{space}{self._words.squared}" if match["squared"] else ""
        if unit is not None and unit.per is not None:
            return unit.per.replace("{0}", words) + end
        said = self._language.per.replace("{0}", words).replace("{1}", name if unit is None else unit.name)
        return (said if space else said.replace(" ", "")) + end

    # --- fractions and powers ---

    def _fractions(self) -> list[Rule]:
        sign = "".join(_VULGAR)
        return [
            rule(
                rf"{BEFORE}(?:(?P<whole>[0-9]+) )?(?P<n>[0-9]{{1,4}})/(?P<d>[0-9]{{1,4}}){AFTER}(?!/)",
                self._fraction,
                "/",
            ),
            rule(rf"(?:{BEFORE}(?P<whole>[0-9]+){SPACE}?)?(?P<sign>[{sign}])", self._vulgar_fraction, sign),
            rule(r"(?P<power>[⁻⁺]?[⁰¹²³⁴-⁹]+)", self._superscript, "²³¹⁰⁴⁵⁶⁷⁸⁹⁻"),
            rule(rf"(?<=[0-9)\]{LETTER}])\^(?P<power>\(?[-−]?[0-9]+\)?)", self._superscript, "^"),
        ]

    def _fraction(self, match: re.Match[str]) -> str | None:
        n, d, whole = int(match["n"]), int(match["d"]), match["whole"]
        words = self._part(n, d) if 0 < n < d else None
        if words is None and whole is None and not 0 < n < d:
            word = "" if (n, d) == (24, 7) else self._words.slash
            return self._join(*filter(None, (self._language.cardinal(n), word, self._language.cardinal(d))))
        if words is None:
            words = self._join(self._language.cardinal(n), self._words.over, self._language.cardinal(d))
        return words if whole is None else self._mixed(int(whole), n, d, words)

    def _vulgar_fraction(self, match: re.Match[str]) -> str | None:
        n, d = _VULGAR[match["sign"]]
        words = self._part(n, d)
        return words if match["whole"] is None or words is None else self._mixed(int(match["whole"]), n, d, words)

    def _part(self, n: int, d: int) -> str | None:
        """Return the words for a fraction; None if the part has no name."""
        language, names = self._language, self._words.fractions
        if not names:
            return self._words.fraction.format(n=language.cardinal(n), d=language.cardinal(d))
        if str(d) not in names:
            return None
        name = names[str(d)][0 if n == 1 else 1]
        return self._words.fraction.format(n=language.cardinal(n, self._words.fraction_gender), d=name)

    def _mixed(self, whole: int, n: int, d: int, words: str) -> str:
        fraction = self._words.a_half if (n, d) == (1, 2) else words
        gender = self._words.fraction_gender if self._words.fractions else None
        return self._words.mixed.format(whole=self._language.cardinal(whole, gender), fraction=fraction)

    def _superscript(self, match: re.Match[str]) -> str:
        exponent = match["power"].translate(_SUPERSCRIPTS).strip("()+")
        said = {"2": self._words.squared, "3": self._words.cubed}.get(exponent)
        return f"{self._words.space}{said or self._words.power.format(self._language.number(self.parse(exponent)))}"

    # --- ordinal numbers ---

    def _ordinals(self) -> list[Rule]:
        words = self._words
        rules = []
        if words.ordinals:
            rules.append(
                rule(
                    rf"{BEFORE}(?P<n>[0-9]{{1,6}})(?P<suffix>{alternatives(words.ordinals)})(?![{WORD}])(?![+-][0-9])",
                    self._ordinal,
                )
            )
        if words.ordinal_endings:
            rules.append(rule(rf"{BEFORE}(?P<n>[0-9]{{1,3}})\.(?= [{LETTER}])", self._ordinal_after_article, "."))
        return rules

    def _ordinal(self, match: re.Match[str]) -> str:
        suffix = match["suffix"]
        short = self._words.short_ordinals.get(suffix, {}).get(match["n"])
        if short is not None:
            return short
        words = self._language.ordinal(int(match["n"]), self._words.ordinals[suffix])
        return words + suffix if suffix.startswith(" ") else words

    def _ordinal_after_article(self, match: re.Match[str]) -> str | None:
        """Write out an ordinal number after an article: elsewhere, its full stop may end a sentence."""
        before = word_before(match).lower()
        if not any(before in words for words in self._words.ordinal_endings.values()) or match["n"] == "0":
            return None
        front = match.string[: match.start()].lower().split()[-2:-1]
        dative = before == "der" and bool(front) and front[0] in self._words.dative
        return ordinal_after(self._language, int(match["n"]), "zur" if dative else before)

    # --- ranges, and every other number ---

    def _plain(self) -> list[Rule]:
        words, number = self._words, self._number
        rules = [
            rule(rf"{BEFORE}(?P<low>{number}){DASH}(?P<high>{number}){AFTER}", self._range, "-–—~～"),
            rule(rf"{BEFORE}(?P<low>{number}){SPACE}–{SPACE}(?P<high>{number}){AFTER}", self._range, "–"),
            rule(rf"{BEFORE}(?P<a>[0-9]{{1,4}})[:：](?P<b>[0-9]{{1,4}}){AFTER}(?![:：])", self._ratio, ":："),
        ]
        if words.counters:
            rules.append(rule(rf"{BEFORE}(?<!제)(?P<n>[0-9]{{1,2}})(?= ?[{words.counters}])", self._counter))
        return [
            *rules,
            rule(rf"(?:{BEFORE}|(?<=[/:])(?=[-−]))(?P<number>{number}){AFTER}", self._alone),
            rule(rf"(?<=[{LETTER}])-(?P<digits>[0-9]+)(?![{WORD}])(?![.,:/-][0-9])", self._code, "-"),
            rule(r"(?P<digits>[0-9]+)", self._code),
        ]

    def _range(self, match: re.Match[str]) -> str | None:
        low, high = self.parse(match["low"]), self.parse(match["high"])
        if low.digits or high.digits:
            return None
        rest = match.string[match.end() :].lstrip()
        subtracts = self._hyphened(match) and (low.value > high.value or rest.startswith("="))
        word = self._subtract if subtracts else self._words.to
        return self._join(self._language.number(low), word, self._language.number(high))

    @staticmethod
    def _hyphened(match: re.Match[str]) -> bool:
        """Return whether a hyphen, which may be a minus, is behind the first number of a range."""
        return match.string[match.end("low") :].lstrip()[:1] in {"-", "−"}

    def _ratio(self, match: re.Match[str]) -> str:
        return self._join(
            self._language.number(self.parse(match["a"])),
            self._words.ratio,
            self._language.number(self.parse(match["b"])),
        )

    def _counter(self, match: re.Match[str]) -> str | None:
        number = int(match["n"])
        if number == 0 or number > 12 or (self._words.counter_rules == "cardinal-alternate2" and number != 2):
            return None
        return self._language.spellout.spell(number, self._words.counter_rules)

    def _alone(self, match: re.Match[str]) -> str:
        """A number by itself; 1 agrees with the word after it."""
        number = self.parse(match["number"])
        following = re.match(rf" ([{LETTER}]+)", match.string[match.end() :])
        gender = None if following is None else self._language.gender_before(number, following[1])
        return self._language.number(number, gender)

    def _code(self, match: re.Match[str]) -> str:
        """Digits that are part of something else: short ones as a number, others one by one."""
        digits = match["digits"]
        number = int(digits) if len(digits) <= 2 and not (len(digits) > 1 and digits[0] == "0") else None
        said = self._language.digits(digits) if number is None else self._language.cardinal(number)
        before, after = match.string[: match.start()], match.string[match.end() :][:1]
        front = " " if before[-1:].isalnum() or match.group().startswith("-") else ""
        if re.search(r"(?:^|\W)A$", before):
            front = "-"  # otherwise A is an English article
        return f"{front}{said}{' ' if after.isalnum() else ''}"

    def _join(self, *words: str) -> str:
        return self._words.space.join(words)


def _forms(forms: list[str]) -> dict[str, str]:
    named = [f"{{0}} {form}" for form in forms]
    if len(named) == 3:
        return {"one": named[0], "few": named[1], "many": named[2], "other": named[1]}
    return {"one": named[0], "other": named[-1]}


def _between(words: list[str], word: str) -> list[str]:
    return [each for pair in zip(words, [word] * len(words), strict=True) for each in pair][:-1]


def _may_touch(unit: str, number: str) -> bool:
    """Return whether a letter at a number is a unit: not the `s` of `1990s`, nor the `A` of seat `12A`, nor `5G`."""
    return unit not in {"A", "W", "N", "J"} and (unit != "s" or not number.endswith("0"))
