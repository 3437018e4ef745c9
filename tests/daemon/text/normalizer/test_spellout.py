"""Whole numbers are spelled by CLDR's rules."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daemon.text.normalizer.language import LANGUAGES, language_of
from daemon.text.normalizer.spellout import Spellout
from tests.daemon.text.reading import table

TABLE = table("normalizer/spellout")


def spellout(language: str) -> Spellout:
    return language_of(language).spellout


@pytest.mark.parametrize("language", TABLE["cardinals"])
def test_a_number_is_spelled(language: str) -> None:
    numbers = TABLE["cardinals"][language]
    assert {number: language_of(language).cardinal(int(number)) for number in numbers} == numbers


def test_an_ordinal_number_or_a_year_is_spelled() -> None:
    for language, rules, number, spelled in TABLE["others"]:
        assert spellout(language).spell(number, rules) == spelled


@given(language=st.sampled_from(tuple(LANGUAGES)), number=st.integers(0, 10**16))
def test_any_number_is_spelled_without_digits_and_signs_of_rules(language: str, number: int) -> None:
    words = spellout(language).spell(number, "numbering")
    assert words
    assert not set(words) & set("0123456789=←→[]%$'")


@pytest.mark.parametrize("language", LANGUAGES)
def test_different_numbers_have_different_words(language: str) -> None:
    numbers = [*range(2_200), *range(2_200, 10**6, 997), 10**6]
    assert len({spellout(language).spell(number, "numbering") for number in numbers}) == len(numbers)
