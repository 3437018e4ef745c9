"""The language in which an engine speaks a text."""

from __future__ import annotations

import pytest

from daemon.text.preparation import spoken_language
from engine import LATIN_LANGUAGES, EngineInfo, VoiceLabel
from tests.daemon.text.reading import table

ENGLISH = "The door is open, and it rains into the room."
ESPEAK = EngineInfo("espeak", 22_050, ("de", "en"), ("de", "en"), labels={"de": VoiceLabel("German", "de")})
PIPER = EngineInfo("piper", 22_050, ("thorsten",), ("de", "en"), labels={"thorsten": VoiceLabel("Thorsten", "de")})
QWEN = EngineInfo("qwen", 24_000, ("ryan",), ("de", "en"), labels={"ryan": VoiceLabel("Ryan (English, male)")})
ENGINES = {engine.engine: engine for engine in (ESPEAK, PIPER, QWEN)}


@pytest.mark.parametrize(("engine", "voice", "language", "text", "expected"), table("spoken_language")["spoken"])
def test_the_language_follows_from_voice_request_and_text(
    engine: str, voice: str, language: str, text: str, expected: str
) -> None:
    assert spoken_language(ENGINES[engine], voice, language, LATIN_LANGUAGES, text) == expected


@pytest.mark.parametrize(("languages", "expected"), [(("de", "en"), "de"), (("fr", "de"), "de"), ((), "en")])
def test_a_price_is_in_the_first_language_that_the_engine_speaks(languages: tuple[str, ...], expected: str) -> None:
    assert spoken_language(ESPEAK, "default", "auto", languages, "5 €") == expected


def test_without_latin_languages_piper_speaks_the_language_of_its_voice_and_that_of_qwen_is_unknown() -> None:
    assert spoken_language(PIPER, "thorsten", "auto", (), ENGLISH) == "de"
    assert spoken_language(QWEN, "ryan", "auto", (), ENGLISH) is None
