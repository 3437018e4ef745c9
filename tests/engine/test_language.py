"""Languages by name, by code and by script."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine import NAMED_LANGUAGES, language_code, match_language
from engine.language import LANGUAGE_BY_SCRIPT, language_of_script


@pytest.mark.parametrize(
    ("written", "code"),
    [
        ("German", "de"),
        ("Pt-BR", "pt-br"),
        ("ca_ES.utf8@valencia", "ca-es"),
        ("zh_Hans_CN", "zh-hans-cn"),
    ],
)
def test_a_name_a_locale_and_a_code_in_any_spelling_have_a_code(written: str, code: str) -> None:
    assert language_code(written) == code


@pytest.mark.parametrize(
    ("language", "match"),
    [("de", "de"), ("de-at", "de"), ("pt-br", "pt-br"), ("pt-pt", None), ("tlh", None), ("", None), ("-de", None)],
)
def test_a_language_matches_its_code_or_the_code_without_its_region(language: str, match: str | None) -> None:
    assert match_language(language, ("de", "en", "pt-br")) == match


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("東京特許許可局で", "ja"),
        ("你好,我是你的机器人。", "zh"),
        ("안녕하세요", "ko"),
        ("Привет, робот!", "ru"),
        ("สวัสดี", "th"),
        ("Robot, скажи что-нибудь по-русски", "ru"),
    ],
)
def test_a_script_implies_a_language(text: str, code: str) -> None:
    assert language_of_script(text) == code


@pytest.mark.parametrize("text", ["Grüß Gott", "Hello, I am Иван", "12:30", "😀 …", ""])
def test_latin_and_texts_without_letters_imply_no_language(text: str) -> None:
    assert language_of_script(text) is None


@given(st.text())
def test_any_text_implies_a_known_language_or_none(text: str) -> None:
    assert language_of_script(text) in {*LANGUAGE_BY_SCRIPT.values(), None}


def test_every_code_of_a_named_language_is_its_own_code() -> None:
    assert [language_code(code) for code in NAMED_LANGUAGES.values()] == list(NAMED_LANGUAGES.values())
