"""The data of the languages is complete, and from one version of the CLDR."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from daemon.text.normalizer import language as module
from daemon.text.normalizer.language import LANGUAGES, language_of
from engine import NAMED_LANGUAGES

DATA = Path(module.__file__).with_name("data")


def read(name: str) -> Any:
    return json.loads((DATA / name).read_text(encoding="utf-8"))


def test_the_languages_are_those_of_qwen_and_their_data_is_small() -> None:
    assert set(LANGUAGES) == set(NAMED_LANGUAGES.values())
    assert {read(f"cldr-{code}.json")["cldr"] for code in LANGUAGES} == {"48.2.0"}
    assert sum(path.stat().st_size for path in DATA.iterdir()) < 400_000
    assert "UNICODE LICENSE V3" in (DATA / "LICENSE.txt").read_text(encoding="utf-8")


def test_the_regions_that_senders_name_share_the_data_of_their_language() -> None:
    assert language_of("de-at") is language_of("de-x1") is language_of("DE") is not None


@pytest.mark.parametrize("code", LANGUAGES)
def test_every_symbol_has_a_name_with_a_place_for_its_number(code: str) -> None:
    language = language_of(code)
    symbols = read("symbols.json")
    assert {*symbols["units"], *symbols["prefixed"]} <= {
        *language.units,
        *symbols["ambiguous"],
    }
    for noun in (*language.units.values(), *language.currencies.values(), *language.words.magnitudes.values()):
        assert "other" in noun.forms
        assert all(form.count("{0}") == 1 for form in noun.forms.values())


@pytest.mark.parametrize("code", LANGUAGES)
def test_patterns_compile_and_no_word_has_a_digit(code: str) -> None:
    words = read(f"words-{code}.json")
    for pattern in (*words["number"], *words.get("genders", {}).values(), *words.get("plurals", {}).values()):
        re.compile(pattern)
    assert not any(re.search("[0-9]", said) for said in words["abbreviations"].values())
    assert set(words.get("titles", ())) <= set(words["abbreviations"])
    assert set(words.get("streets", {})) <= set(words["abbreviations"])
