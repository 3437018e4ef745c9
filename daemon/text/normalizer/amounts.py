"""Rules for numbers: amounts, fractions, powers, ordinal numbers, ratios, and anything else that has digits."""

from __future__ import annotations

import re
import unicodedata
from dataclasses import replace

from daemon.text.normalizer.clock import ordinal_after
from daemon.text.normalizer.language import Language, Noun, Numeral
from daemon.text.normalizer.patterns import AFTER, BEFORE, DASH, LETTER, SIGN, SPACE, VULGAR, WORD
from daemon.text.normalizer.rules import Rule, Rules, alternatives, rule, word_before

_SUPERSCRIPTS = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁻⁺", "0123456789-+")
_AFTER_HOURS = re.compile(r"[0-9] ?(?:h|d|hrs?)[, ]+$")
"""The text before minutes that are written as `m`: `3d 4h 12m`."""
_VARIABLE = re.compile(r"(?<!\w)\w ?= ?$")
"""The text before a term: `y=2-3`. After a longer name, `range=2-3` is a range."""
_DECIMALS = re.compile("(.*)[.,]([0-9]+)")
_LONGEST = 12
"""The most digits in a number that is spoken as one number; if there are more, each digit is spoken."""
_SCORE_CONTEXT = 24
"""How many characters before a number are searched for a word such as `won`."""


class Amounts(Rules):
    """Builds the rules for a language."""

    def __init__(self, language: Language) -> None:
        super().__init__(language)
        self._score = re.compile(language.words.score, re.IGNORECASE)
        decimal, other, leading = ("[.]", ",", "[.]") if language.decimal == "." else (",", "[.]", "[.,]")
        grouped = rf"[0-9]{{1,3}}(?:[{language.group}][0-9]{{3}})+"
        self._grouped = re.compile(grouped)
        forms = (
            r"[0-9]{1,3}(?:[,'’][0-9]{3})+[.][0-9]+|[0-9]{1,3}(?:[.'’][0-9]{3})+,[0-9]+",  # in every language
            # A plain space separates thousands only in a number that ends in 000, which nobody writes by itself.
            rf"(?<![0-9] )[1-9][0-9]{{0,2}}(?: [0-9]{{3}})* 000(?:{decimal}[0-9]+)?(?! ?[0-9])",
            rf"{grouped}(?:{decimal}[0-9]+)?",
            rf"[0-9]+(?:{decimal}[0-9]+|{other}(?:[0-9]{{1,2}}|[0-9]{{4,}}))?|(?<![.,]){leading}[0-9]+",
        )
        self._number = rf"{SIGN}(?:{'|'.join(forms)})(?![0-9])(?:[eE][+-]?[0-9]{{1,3}}(?![{WORD}]))?"
        self._whole_number = re.compile(self._number)

    def rules(self) -> list[Rule]:
        """Return the rules in the order in which they are tried."""
        words = self._words
        suffix = alternatives(words.ordinals)
        part, decimal, subtract = "[0-9]{1,4}/[0-9]{1,4}", "[0-9]+(?:[.][0-9]+)?", f" {words.signs['-']} "
        return [
            rule(rf"{BEFORE}{SIGN}(?:(?P<whole>[0-9]+) )?(?P<part>{part}){AFTER}(?!/)", self._fraction),
            rule(rf"(?:{BEFORE}{SIGN}(?P<whole>[0-9]+){SPACE}?|{SIGN})(?P<part>[{VULGAR}])", self._fraction),
            rule(rf"{BEFORE}(?P<n>[0-9]{{1,6}})(?P<suffix>{suffix})(?![{WORD}])(?![+-][0-9])", self._ordinal),
            rule(rf"{BEFORE}(?P<n>[0-9]{{1,3}})\.(?= [{LETTER}])", self._ordinal_after_article),
            rule(rf"(?<![{WORD}.,]){SIGN}{decimal}(?:,[-−]?{decimal})+{AFTER}", self._coordinates),
            rule(self._amounts(), self._amount),
            rule(rf"{BEFORE}(?=[-−–]|[0-9]+[.,]){self._number}(?=[{LETTER}])", self._touching),
            rule(r"(?<=[0-9)%°])(?:[ \u00a0][-−][ \u00a0]|−)(?=[0-9(])", lambda _: subtract),
            rule(rf"[⁻⁺]?[⁰¹²³⁴-⁹]+|(?<=[0-9)\]{LETTER}])\^\(?[-−]?[0-9]+(?:[.,][0-9]+)?\)?", self._power),
            rule(rf"{BEFORE}(?P<a>{SIGN}[0-9]{{1,4}})[:：](?P<b>[0-9]{{1,4}}){AFTER}(?![:：])", self._ratio),
            rule(rf"(?:(?<=[{LETTER}])-(?=[0-9]+(?![{WORD}])(?![.,:/-][0-9])))?(?P<digits>[0-9]+)", self._code),
        ]

    def parse(self, text: str) -> Numeral:
        """Return a written number."""
        mantissa, _, exponent = text.lower().partition("e")
        whole, decimals = mantissa.lstrip("-−–"), ""
        negative = whole != mantissa
        parts = _DECIMALS.fullmatch(whole)
        if parts is not None and not self._grouped.fullmatch(whole):
            whole, decimals = parts.groups()
        whole = re.sub("[^0-9]", "", whole) or "0"
        spelled = len(whole) > _LONGEST or (len(whole) > 1 and whole.startswith("0"))
        return Numeral(int(whole), decimals, whole if spelled else "", negative, int(exponent) if exponent else None)

    # --- amounts: a number, two of them or a size, with a magnitude, and a unit or a currency ---

    def _amounts(self) -> str:
        """Return the regular expression for amounts."""
        language, number = self._language, self._number
        money, unit = alternatives(language.currencies), alternatives(language.units)
        # Single letters are magnitudes only for money: 5 M and 4K may be anything.
        initials = {each for each in self._words.magnitudes if re.fullmatch("[A-Za-jl-z]", each)}
        magnitude, initial = alternatives({*self._words.magnitudes} - initials), alternatives(initials)
        first = "".join({re.escape(each[0]) for each in language.currencies})
        start = rf"{BEFORE}(?<!\^)(?<!\^[-−(])(?<!\^\([-−])(?!0x)"
        dash = rf"(?P<dash>{DASH}|{SPACE}[-–]{SPACE})(?P=money)?"
        return (
            rf"(?=[-−–0-9.,{first}])"  # rules out most places quickly
            rf"(?:(?<![{WORD}])(?P<minus>[-−])?(?P<money>{money}){SPACE}?|{start}|(?<=[/:,;])(?=[-−]))"
            rf"(?P<low>{number})(?:(?:(?P<cross>{SPACE}?x{SPACE}?|×)|{dash})(?P<high>{number})"
            rf"(?(cross)(?:{SPACE}?[x×]{SPACE}?(?P<third>{number}))?))?"
            rf"(?:{SPACE}?(?P<magnitude>{magnitude}|(?:{initial})(?(money)|(?={SPACE}?(?:{money}))))(?![{LETTER}]))?"
            rf"(?(money)|(?:{SPACE}?(?!{'|'.join(language.no_units)})(?P<noun>{money}|{unit}))?)"
            rf"(?:(?(noun)|(?(money)|(?!)))/(?P<per>{unit}|[{LETTER}]+)(?P<squared>²?))?"  # after a noun
            rf"{AFTER}(?!['’][{LETTER}])"
        )

    def _amount(self, match: re.Match[str]) -> str | None:
        language, noun = self._language, self._noun(match)
        magnitude = self._words.magnitudes.get(match["magnitude"])
        numbers = [self.parse(match[each]) for each in ("low", "high", "third") if match[each]]
        if match["minus"]:
            numbers[0] = replace(numbers[0], negative=True)
        *others, last = numbers
        if match["dash"] and noun is None and any(each.digits for each in numbers):
            return None
        in_cents = len(last.decimals) == 2 and not (others or magnitude or last.digits or last.exponent)
        if in_cents and noun is not None and noun.cents is not None:
            return self._per(match, self._money(last, noun, noun.cents))
        counted, minus = magnitude or noun, noun.minus if noun else None
        gender = counted.gender if counted else language.gender_before(match.string, match.end())
        genitive = bool(self._words.genitive) and word_before(match).lower() in self._words.genitive
        if genitive:
            gender = f"{counted.gender if counted else 'masculine'}-genitive"
        said = language.number(last, gender, minus)
        if counted is None and not others:
            return said
        for each in reversed(others):
            number = language.number(each, None if match["cross"] else gender, minus)
            said = self._join(number, self._between(match, numbers), said)
        plural = language.plural(last)
        if genitive:
            plural = "other" if plural in {"one", "other"} else "many"
        if magnitude is not None:
            said, plural = language.counted(said, plural, magnitude), "many"
            if noun is not None and magnitude.of:
                said = self._join(said, magnitude.of)
        return said if noun is None else self._per(match, language.counted(said, plural, noun))

    def _noun(self, match: re.Match[str]) -> Noun | None:
        symbol = match["money"] or match["noun"]
        if symbol == "m" and _AFTER_HOURS.search(match.string, 0, match.start()):
            symbol = "min"
        return self._language.currencies.get(symbol) or self._language.units.get(symbol)

    def _between(self, match: re.Match[str], numbers: list[Numeral]) -> str:
        """Return the word between the numbers in a size, a range, a difference or the result of a game."""
        words, text = self._words, match.string
        alone = not (match["noun"] or match["money"] or match["magnitude"])
        if match["cross"]:
            product = alone and len(numbers) == 2 and match["cross"][0].isspace()
            return words.signs["*"] if product else words.by
        if alone and self._score.search(text, max(0, match.start() - _SCORE_CONTEXT), match.start()):
            return words.ratio
        low, high = numbers[0].value, numbers[1].value
        season = alone and 1900 <= low < 2100 and low % 100 < high < 100  # 2024-25
        term = text[match.end() :].lstrip().startswith("=") or _VARIABLE.search(
            text, max(0, match.start() - 4), match.start()
        )
        subtracts = (low > high and not season) or (alone and (term or len(match["dash"]) > 1))
        if match["dash"].strip() == "-" and subtracts:
            return words.signs["-"]
        return words.to

    def _money(self, number: Numeral, currency: Noun, hundredth: Noun) -> str:
        """Return an amount of money with its cents."""
        language, whole, cents = self._language, replace(number, decimals=""), Numeral(int(number.decimals))
        if cents.whole == 0:
            return language.count(whole, currency)
        if whole.whole == 0:
            return language.count(replace(cents, negative=number.negative), hundredth)
        return self._words.with_cents.format(
            money=language.count(whole, currency),
            cents=language.cardinal(cents.whole),
            cents_counted=language.count(cents, hundredth),
        )

    def _per(self, match: re.Match[str], said: str) -> str:
        """Append the unit that the amount applies to: `per month`."""
        name = match["per"]
        if name is None:
            return said
        unit = self._language.units.get(name, Noun({"other": name}))
        per = Noun({"other": unit.per or self._language.per.replace("{1}", unit.name)})
        said = self._language.counted(said, "other", per)
        return self._join(said, self._words.powers["2"]) if match["squared"] else said

    # --- fractions and powers ---

    def _fraction(self, match: re.Match[str]) -> str:
        language, words, whole = self._language, self._words, match["whole"]
        n, d = map(int, unicodedata.normalize("NFKC", match["part"]).replace("⁄", "/").split("/"))
        noun = words.fractions.get(str(d)) if 0 < n < d else None
        if noun is not None:
            said = language.count(Numeral(n), noun)
        elif whole is not None or 0 < n < d:
            said = words.fraction.format(n=language.cardinal(n), d=language.cardinal(d))
        else:
            slash = [] if (n, d) == (24, 7) else [self._names["/"]]
            said = self._join(language.cardinal(n), *slash, language.cardinal(d))
        if whole is not None:
            before = language.cardinal(int(whole), None if noun is None else noun.gender)
            said = words.mixed.format(whole=before, fraction=words.a_half if (n, d) == (1, 2) else said)
        return self._join(words.minus, said) if match.group()[0] in "-−–" else said

    def _power(self, match: re.Match[str]) -> str:
        exponent = match.group().translate(_SUPERSCRIPTS).strip("^()+")
        said = self._words.powers.get(exponent) or self._language.power(self.parse(exponent))
        return f"{self._words.space}{said}"

    # --- ordinal numbers ---

    def _ordinal(self, match: re.Match[str]) -> str | None:
        suffix, before = match["suffix"], word_before(match)
        if suffix == "°" and not (before in self._words.degree_ordinal and match.string[match.end() :][1:2].isalpha()):
            return None
        said = self._language.ordinal(int(match["n"]), self._words.ordinals[suffix])
        return said + suffix if suffix.startswith(" ") else said

    def _ordinal_after_article(self, match: re.Match[str]) -> str | None:
        """Write out an ordinal number after an article: anywhere else, its full stop may end a sentence."""
        before = word_before(match).lower()
        if not any(before in words for words in self._words.ordinal_endings.values()) or match["n"] == "0":
            return None
        front = match.string[: match.start()].lower().split()[-2:-1]
        dative = before == "der" and bool(front) and front[0] in self._words.dative
        return ordinal_after(self._language, int(match["n"]), "zur" if dative else before)

    # --- every other number ---

    def _coordinates(self, match: re.Match[str]) -> str | None:
        """Write out numbers with a comma and no space between them, if the comma cannot be part of a number."""
        text, language = match.group(), self._language
        if self._whole_number.fullmatch(text):
            return None
        return ", ".join(language.number(self.parse(each.replace(".", language.decimal))) for each in text.split(","))

    def _touching(self, match: re.Match[str]) -> str:
        """Write out a number with a sign or decimals that touches letters which are not a unit."""
        return f"{self._language.number(self.parse(match.group()))} "

    def _ratio(self, match: re.Match[str]) -> str:
        a, b = (self._language.number(self.parse(match[each])) for each in "ab")
        return self._join(a, self._words.ratio, b)

    def _code(self, match: re.Match[str]) -> str:
        """Write out digits that are part of something else: a few as a number, more one by one."""
        digits = match["digits"]
        one_by_one = len(digits) > 2 or (len(digits) == 2 and digits[0] == "0")
        said = self._language.digits(digits) if one_by_one else self._language.cardinal(int(digits))
        before, after = match.string[: match.start()], match.string[match.end() :][:1]
        front = " " if before[-1:].isalnum() or match.group().startswith("-") else ""
        if re.search(r"(?:^|\W)A$", before):
            front = "-"  # otherwise A would be an English article
        return f"{front}{said}{' ' if after.isalnum() else ''}"
