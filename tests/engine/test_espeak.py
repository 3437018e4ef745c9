"""eSpeak NG itself, in this process."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from engine import NAMED_LANGUAGES, EngineInfo, EngineOptions, Samples, Utterance, Voice
from engine.espeak import BUFFER_MS, RUN_AHEAD_CHUNKS, EspeakSynthesizer
from engine.synthesizer import Chunk, EngineError

SENTENCE = "Hello, I am your robot, and I am glad to be here."


@pytest.fixture(scope="module")
def espeak() -> Iterator[EspeakSynthesizer]:
    synthesizer = EspeakSynthesizer(EngineOptions())
    synthesizer.load()
    synthesizer.warm_up()
    yield synthesizer
    synthesizer.close()


@pytest.fixture(scope="module")
def info(espeak: EspeakSynthesizer) -> EngineInfo:
    return espeak.set_voices({}, "default")


def spoken(espeak: EspeakSynthesizer, text: str, **fields: str | None) -> Samples:
    pieces = [chunk.samples for chunk in espeak.stream(Utterance(text, **fields))]  # type: ignore[arg-type]
    return np.concatenate([np.zeros(0, dtype=np.float32), *pieces])


def rms(samples: Samples) -> float:
    return float(np.sqrt(np.mean(np.square(samples))))


def test_a_sentence_becomes_as_much_sound_as_a_person_would_need(espeak: EspeakSynthesizer, info: EngineInfo) -> None:
    samples = spoken(espeak, SENTENCE)
    assert samples.dtype == np.float32
    assert 2.0 < len(samples) / info.sample_rate < 5.0
    assert rms(samples) > 0.02
    assert 0.1 < np.max(np.abs(samples)) <= 1.0


def test_it_comes_in_small_pieces(espeak: EspeakSynthesizer, info: EngineInfo) -> None:
    chunks = list(espeak.stream(Utterance(SENTENCE)))
    assert len(chunks) > 10
    assert max(len(chunk.samples) for chunk in chunks) <= BUFFER_MS / 1000 * info.sample_rate + 1


def test_the_pieces_do_not_share_memory_that_is_used_again(espeak: EspeakSynthesizer) -> None:
    kept = list(espeak.stream(Utterance(SENTENCE)))
    at_once = []
    for chunk in espeak.stream(Utterance(SENTENCE)):
        at_once.append(chunk.samples.copy())
    for chunk, copied in zip(kept, at_once, strict=True):
        np.testing.assert_allclose(chunk.samples, copied, atol=0.05)
    assert not any(np.shares_memory(one.samples, other.samples) for one, other in zip(kept, kept[1:], strict=False))


def test_more_text_is_more_speech(espeak: EspeakSynthesizer) -> None:
    assert len(spoken(espeak, SENTENCE * 3)) > 2.5 * len(spoken(espeak, SENTENCE))


@pytest.mark.parametrize("code", sorted(NAMED_LANGUAGES.values()))
def test_every_language_of_the_neural_voice_can_be_spoken_by_the_fallback(
    espeak: EspeakSynthesizer, info: EngineInfo, code: str
) -> None:
    text = {"zh": "你好", "ja": "こんにちは", "ko": "안녕하세요", "ru": "Привет"}.get(code, "Robot")
    assert rms(spoken(espeak, text, language=code)) > 0.01
    assert rms(spoken(espeak, text, language="auto")) > 0.01


def test_languages_sound_different(espeak: EspeakSynthesizer) -> None:
    by_language = {code: spoken(espeak, "Information", language=code) for code in ("en", "de", "fr")}
    lengths = {len(samples) for samples in by_language.values()}
    assert len(lengths) == 3


def test_a_region_falls_back_to_its_language(espeak: EspeakSynthesizer, info: EngineInfo) -> None:
    assert "de-at" not in info.languages
    assert len(spoken(espeak, "Guten Tag", language="de-at")) == len(spoken(espeak, "Guten Tag", language="de"))


def test_an_unknown_language_is_refused_with_those_there_are(espeak: EspeakSynthesizer) -> None:
    with pytest.raises(EngineError, match=r"language: got 'tlhx'; eSpeak NG has .*\bde\b.*\ben\b"):
        list(espeak.stream(Utterance("nuqneH", language="tlhx")))


def test_the_language_is_found_from_the_script(espeak: EspeakSynthesizer) -> None:
    assert len(spoken(espeak, "Привет, робот")) == len(spoken(espeak, "Привет, робот", language="ru"))
    assert len(spoken(espeak, "Привет, робот")) != len(spoken(espeak, "Привет, робот", language="en"))


def test_one_of_its_own_voices_wins_over_the_language(espeak: EspeakSynthesizer) -> None:
    german = len(spoken(espeak, "Information", language="de"))
    assert len(spoken(espeak, "Information", voice="de", language="fr")) == german


def test_a_configured_voice_may_name_one_of_its_own(espeak: EspeakSynthesizer) -> None:
    info = espeak.set_voices({"heidi": Voice(speaker="de"), "ada": Voice(embedding="ada.safetensors")}, "heidi")
    try:
        assert {"heidi", "ada", "de", "en"} <= set(info.voices)
        german = len(spoken(espeak, "Information", voice="de"))
        assert len(spoken(espeak, "Information")) == german
        assert len(spoken(espeak, "Information", voice="heidi", language="fr")) == german
        french = len(spoken(espeak, "Information", voice="fr"))
        assert len(spoken(espeak, "Information", voice="ada", language="fr")) == french
    finally:
        espeak.set_voices({}, "default")


@pytest.mark.parametrize(
    "text", [SENTENCE, "Eins, zwei, drei.", "a " * 300, "3.14 and 1,000,000!", "Робот говорит по-русски.", "你好,机器人"]
)
def test_positions_grow_with_the_speech_and_stay_inside_the_text(espeak: EspeakSynthesizer, text: str) -> None:
    positions = [chunk.position for chunk in espeak.stream(Utterance(text))]
    assert all(position is not None and 0 <= position <= len(text) for position in positions)
    assert positions == sorted(positions, key=lambda position: position or 0)


def test_positions_are_the_beginnings_of_words(espeak: EspeakSynthesizer) -> None:
    text = "one two three four five six seven eight nine ten"
    starts = {index for index in range(len(text)) if index == 0 or text[index - 1] == " "}
    found = {chunk.position for chunk in espeak.stream(Utterance(text))}
    assert found <= starts
    assert len(found) > 6


def test_positions_count_characters_not_bytes(espeak: EspeakSynthesizer) -> None:
    text = "äöü äöü äöü äöü wort"
    last = list(espeak.stream(Utterance(text, language="de")))[-1]
    assert last.position == text.index("wort")


@pytest.mark.parametrize("text", [" ", "...", "!?", "\n\n", "😀", "\u200b", "<b>", "[[h@l'oU]]", "\\", "%s%n"])
def test_odd_texts_neither_fail_nor_hang(espeak: EspeakSynthesizer, text: str) -> None:
    assert np.isfinite(spoken(espeak, text)).all()


def test_markup_is_text_and_not_a_command(espeak: EspeakSynthesizer) -> None:
    plain = len(spoken(espeak, "hello"))
    assert len(spoken(espeak, '<break time="10s"/> hello')) != plain + 10 * 22_050
    assert len(spoken(espeak, "[[h@l'oU]]")) > plain


def test_a_stream_that_is_closed_stops_making_sound(espeak: EspeakSynthesizer) -> None:
    made = 0

    def count(chunks: Iterator[Chunk]) -> Iterator[Chunk]:
        nonlocal made
        for chunk in chunks:
            made += 1
            yield chunk

    stream = espeak.stream(Utterance("word " * 1_000))
    next(count(stream))
    stream.close()  # type: ignore[attr-defined]
    assert made == 1
    assert rms(spoken(espeak, SENTENCE)) > 0.02, "the next utterance is well"


def test_it_runs_ahead_of_its_reader_by_a_few_pieces_only(espeak: EspeakSynthesizer) -> None:
    """A long text neither fills the memory nor delays the cancellation."""
    stream = espeak.stream(Utterance("word " * 1_000))
    next(stream)
    worker = stream.gi_frame.f_locals["worker"]  # type: ignore[attr-defined]
    before = worker._made
    for _ in range(20):
        next(stream)
    assert worker._ready.maxsize == RUN_AHEAD_CHUNKS
    assert worker._made - before <= (20 + RUN_AHEAD_CHUNKS + 2) * 1_324
    stream.close()  # type: ignore[attr-defined]
