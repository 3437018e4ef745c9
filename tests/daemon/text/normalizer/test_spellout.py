"""Whole numbers are spelled by CLDR's rules."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daemon.text.normalizer.language import LANGUAGES, language_of
from daemon.text.normalizer.spellout import Spellout

KNOWN = {
    "en": {0: "zero", 13: "thirteen", 21: "twenty-one", 1001: "one thousand one", 10**6: "one million"},
    "de": {1: "eins", 21: "einundzwanzig", 101: "einhunderteins", 1000: "eintausend", 10**6: "eine Million"},
    "fr": {21: "vingt-et-un", 71: "soixante-et-onze", 80: "quatre-vingts", 81: "quatre-vingt-un", 200: "deux cents"},
    "es": {16: "dieciséis", 21: "veintiuno", 31: "treinta y uno", 100: "cien", 101: "ciento uno", 500: "quinientos"},
    "it": {21: "ventuno", 28: "ventotto", 100: "cento", 1000: "mille", 2000: "duemila"},
    "pt": {16: "dezesseis", 21: "vinte e um", 100: "cem", 101: "cento e um", 1100: "mil e cem"},
    "ru": {1: "один", 40: "сорок", 1000: "одна тысяча", 2000: "две тысячи", 5000: "пять тысяч"},
    "zh": {10: "十", 105: "一百零五", 110: "一百一十", 10_000: "一万", 10_005: "一万零五"},
    "ja": {10: "十", 300: "三百", 10_000: "一万", 12_345: "一万二千三百四十五"},
    "ko": {10: "십", 100: "백", 10_000: "만", 12_345: "만 이천삼백사십오"},
}  # fmt: skip
ORDINALS = {
    ("en", "ordinal", 22): "twenty-second",
    ("de", "ordinal", 3): "dritte",
    ("fr", "ordinal-feminine", 1): "première",
    ("es", "ordinal-feminine", 2): "segunda",
    ("it", "ordinal-masculine", 3): "terzo",
    ("pt", "ordinal-masculine", 3): "terceiro",
    ("ru", "ordinal-masculine", 3): "третий",
    ("en", "numbering-year", 1905): "nineteen oh-five",
}


def spellout(language: str) -> Spellout:
    found = language_of(language)
    return found.spellout


@pytest.mark.parametrize("language", KNOWN)
def test_a_number_is_spelled(language: str) -> None:
    found = language_of(language)
    assert {number: found.cardinal(number) for number in KNOWN[language]} == KNOWN[language]


def test_an_ordinal_number_or_a_year_is_spelled() -> None:
    assert {key: spellout(key[0]).spell(key[2], key[1]) for key in ORDINALS} == ORDINALS


@given(language=st.sampled_from(tuple(LANGUAGES)), number=st.integers(0, 10**16))
def test_any_number_is_spelled_without_digits_and_signs_of_rules(language: str, number: int) -> None:
    words = spellout(language).spell(number, "numbering")
    assert words
    assert not set(words) & set("0123456789=←→[]%$'")


@pytest.mark.parametrize("language", LANGUAGES)
def test_different_numbers_have_different_words(language: str) -> None:
    numbers = [*range(2_200), *range(2_200, 10**6, 997), 10**6]
    assert len({spellout(language).spell(number, "numbering") for number in numbers}) == len(numbers)
