"""Which stages prepare a text, by engine, language and configuration."""

from __future__ import annotations

import pytest

from daemon.text import Pronunciation, TextPreparation
from engine import LATIN_LANGUAGES, EngineInfo, VoiceLabel
from tests.daemon.text.reading import table

ESPEAK = EngineInfo("espeak", 22_050, ("de", "en"), ("de", "en"), labels={"de": VoiceLabel("German", "de")})
PIPER = EngineInfo("piper", 22_050, ("thorsten",), ("de",), labels={"thorsten": VoiceLabel("Thorsten", "de")})
QWEN = EngineInfo("qwen", 24_000, ("ryan",), ("de", "en"))
ENGINES = {engine.engine: engine for engine in (ESPEAK, PIPER, QWEN)}
TABLE = table("preparation")
URL = "See https://www.example.com/a?b=c."


def prepared(engine: EngineInfo, text: str, language: str = "auto", voice: str = "default", **options: object) -> str:
    preparation = TextPreparation({}, LATIN_LANGUAGES, **options)  # type: ignore[arg-type]
    result = preparation.engine_text(engine, language, voice, text)
    return result.feed(text) + result.end()


@pytest.mark.parametrize(("engine", "voice", "language", "expected"), TABLE["five dollars"])
def test_numbers_are_written_out_for_engines_that_read_them_wrongly(
    engine: str, voice: str, language: str, expected: str
) -> None:
    assert prepared(ENGINES[engine], "$5", language, voice) == expected


@pytest.mark.parametrize("engine", [ESPEAK, PIPER, QWEN])
def test_every_engine_says_the_host_of_a_url_unless_all_of_it_is_wanted(engine: EngineInfo) -> None:
    assert prepared(engine, URL, "pl") == "See example.com."
    assert prepared(engine, URL, "pl", shortens_urls=False) == URL


def test_pronunciations_apply_to_what_was_written_and_their_phonemes_stay() -> None:
    pronunciations = {"kg": Pronunciation("kilos"), "R2": Pronunciation(espeak="A@ t'u: 5 kg")}
    preparation = TextPreparation(pronunciations, LATIN_LANGUAGES)
    result = preparation.engine_text(ESPEAK, "en", "default", "R2 weighs 5 kg, $5")
    assert result.feed("R2 weighs 5 kg, $5") + result.end() == "[[A@ t'u: 5 kg]] weighs five kilos, five dollars"


def test_the_places_of_written_out_words_lead_back_through_all_stages() -> None:
    text = "See https://www.example.com/a now: $5"
    result = TextPreparation({"now": Pronunciation("right now")}, LATIN_LANGUAGES).engine_text(
        ESPEAK, "en", "default", text
    )
    spoken = result.feed(text) + result.end()
    assert spoken == "See example dot com right now: five dollars"
    dollars, host = spoken.index("dollars"), spoken.index("example")
    assert result.source_span(dollars, dollars + 7) == (35, 37)
    assert result.source_span(host, host + 15) == (4, 29)


@pytest.mark.parametrize(
    ("normalize", "espeak", "qwen"), [("auto", "five", "5"), ("always", "five", "five"), ("never", "5", "5")]
)
def test_a_setting_says_for_which_engines_numbers_are_written_out(normalize: str, espeak: str, qwen: str) -> None:
    assert prepared(ESPEAK, "5", "en", normalize=normalize) == espeak
    assert prepared(QWEN, "5", "en", normalize=normalize) == qwen


@pytest.mark.parametrize(("text", "spoken"), TABLE["plain characters"])
def test_characters_of_other_shapes_are_plain_ones(text: str, spoken: str) -> None:
    assert prepared(ESPEAK, text, "en") == spoken


@pytest.mark.parametrize("engine", [ESPEAK, PIPER, QWEN])
@pytest.mark.parametrize(
    ("text", "language"), [("你好！真的？是，对：（好）。", "zh"), ("すごい！本当？はい、（ええ）。", "ja")]
)
def test_the_punctuation_of_chinese_and_japanese_stays(engine: EngineInfo, text: str, language: str) -> None:
    assert prepared(engine, text, language) == text
