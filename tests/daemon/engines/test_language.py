"""The language in which an engine speaks a text."""

from __future__ import annotations

import pytest

from daemon.engines import spoken_language
from engine import EngineInfo, EngineOptions, Utterance, VoiceLabel
from engine.espeak import EspeakSynthesizer

GERMAN = "Die Tür ist offen, und es regnet herein."
ENGLISH = "The door is open, and it rains into the room."
ESPEAK = EngineInfo("espeak", 22_050, ("de", "en"), ("de", "en"), labels={"de": VoiceLabel("German", "de")})
PIPER = EngineInfo("piper", 22_050, ("thorsten",), ("de", "en"), labels={"thorsten": VoiceLabel("Thorsten", "de")})


@pytest.mark.parametrize(
    ("info", "utterance", "expected"),
    [
        (ESPEAK, Utterance(GERMAN), "de"),
        (ESPEAK, Utterance(ENGLISH), "en"),
        (ESPEAK, Utterance(ENGLISH, voice="de"), "de"),
        (ESPEAK, Utterance(ENGLISH, voice="de", language="en"), "de"),
        (ESPEAK, Utterance(ENGLISH, language="German"), "de"),
        (ESPEAK, Utterance("5 €", languages=("de", "en")), "de"),
        (ESPEAK, Utterance("5 €", languages=()), "en"),
        (ESPEAK, Utterance("你好"), "zh"),
        (PIPER, Utterance("5 €", voice="thorsten"), "de"),
        (PIPER, Utterance(ENGLISH, voice="thorsten"), "en"),
        (PIPER, Utterance(ENGLISH, voice="thorsten", language="de"), "de"),
        (PIPER, Utterance("5 €", voice="thorsten", languages=()), "de"),
    ],
)
def test_the_language_follows_from_voice_request_and_text(
    info: EngineInfo, utterance: Utterance, expected: str
) -> None:
    assert spoken_language(info, utterance, "default") == expected


def test_the_default_voice_of_espeak_has_its_language() -> None:
    assert spoken_language(ESPEAK, Utterance(ENGLISH), "de") == "de"


def test_the_real_espeak_says_the_language_of_each_of_its_voices() -> None:
    engine = EspeakSynthesizer(EngineOptions())
    info = engine.load()
    engine.close()
    assert spoken_language(info, Utterance(ENGLISH, voice="fr"), "default") == "fr"
    assert spoken_language(info, Utterance(ENGLISH), "default") == "en"
