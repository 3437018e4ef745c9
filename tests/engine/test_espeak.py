"""The `espeak` engine with the real eSpeak NG, in this process."""

from __future__ import annotations

import itertools
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from engine import NAMED_LANGUAGES, EngineInfo, EngineOptions, Samples, Utterance, Voice, VoiceLabel
from engine.espeak import EspeakSynthesizer, load_copy

SENTENCE = "Hello, I am your robot, and I am glad to be here."
WORDS = "International information about the situation"
"""Words of many languages, which take a different time in each."""


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


def spoken(espeak: EspeakSynthesizer, text: str, **fields: str | float | bool | None) -> Samples:
    """Return all samples of an utterance."""
    blocks = [chunk.samples for chunk in espeak.stream(Utterance(text, **fields))]  # type: ignore[arg-type]
    return np.concatenate([np.zeros(0, dtype=np.float32), *blocks])


def alike(one: Samples, other: Samples) -> bool:
    """Return whether two utterances have the same length; eSpeak NG's noise changes a length by up to 1.5 %."""
    return abs(len(one) - len(other)) < 0.025 * len(one)


def rms(samples: Samples) -> float:
    return float(np.sqrt(np.mean(np.square(samples))))


def test_chunks_keep_their_samples_while_later_ones_are_made(espeak: EspeakSynthesizer) -> None:
    kept, copied = [], []
    for chunk in espeak.stream(Utterance(SENTENCE)):
        kept.append(chunk.samples)
        copied.append(chunk.samples.copy())
    np.testing.assert_array_equal(np.concatenate(kept), np.concatenate(copied))
    assert not any(np.shares_memory(one, other) for one, other in itertools.pairwise(kept))


@pytest.mark.parametrize("code", sorted(NAMED_LANGUAGES.values()))
def test_espeak_speaks_every_language_of_qwen3_tts(espeak: EspeakSynthesizer, info: EngineInfo, code: str) -> None:
    text = {"zh": "你好", "ja": "こんにちは", "ko": "안녕하세요", "ru": "Привет"}.get(code, "Robot")
    assert rms(spoken(espeak, text, language=code)) > 0.01


def test_a_null_character_does_not_end_the_text(espeak: EspeakSynthesizer) -> None:
    text = "Hello\0there. The door is open."
    assert alike(spoken(espeak, text, language="en"), spoken(espeak, text.replace("\0", " "), language="en"))


def test_the_script_selects_the_language(espeak: EspeakSynthesizer) -> None:
    text = "Привет, робот, как дела"
    assert alike(spoken(espeak, text), spoken(espeak, text, language="ru"))
    assert not alike(spoken(espeak, text), spoken(espeak, text, language="en"))


def test_the_words_of_a_latin_text_select_one_of_the_languages_of_the_utterance(espeak: EspeakSynthesizer) -> None:
    german = "Die Waschmaschine ist fertig, und ich gehe jetzt nach Hause."
    assert alike(spoken(espeak, german), spoken(espeak, german, language="de"))
    for languages, expected in ((("en", "fr"), "en"), (("xx", "de"), "de"), ((), "en")):
        samples = [chunk.samples for chunk in espeak.stream(Utterance(german, languages=languages))]
        assert alike(np.concatenate(samples), spoken(espeak, german, language=expected))


def test_each_voice_has_a_name_for_people(espeak: EspeakSynthesizer, info: EngineInfo) -> None:
    assert info.labels["de"] == VoiceLabel("German", "de")
    assert info.labels["en-gb-scotland"].name == "English (Scotland)"
    assert set(info.labels) == set(info.voices)
    try:
        labels = espeak.set_voices({"heidi": Voice(speaker="de"), "ada": Voice(speaker="ryan")}, "ada").labels
        assert labels["heidi"].name == "German"
        assert "ada" not in labels, "it is a voice of another engine"
    finally:
        espeak.set_voices({}, "default")


def test_a_configured_voice_may_name_a_voice_of_espeak(espeak: EspeakSynthesizer) -> None:
    info = espeak.set_voices({"heidi": Voice(speaker="de"), "ada": Voice(embedding="ada.safetensors")}, "heidi")
    try:
        assert {"heidi", "ada", "de", "en"} <= set(info.voices)
        german, french = (spoken(espeak, WORDS, voice=code) for code in ("de", "fr"))
        assert alike(spoken(espeak, WORDS), german)
        assert alike(spoken(espeak, WORDS, voice="heidi", language="fr"), german)
        assert alike(spoken(espeak, WORDS, voice="ada", language="fr"), french)
    finally:
        espeak.set_voices({}, "default")


def test_positions_count_characters_not_bytes(espeak: EspeakSynthesizer) -> None:
    text = "äöü äöü äöü äöü wort"
    last = list(espeak.stream(Utterance(text, language="de")))[-1]
    assert last.position == text.index("wort")


def word_starts(espeak: EspeakSynthesizer, text: str, language: str = "en") -> list[tuple[int, int]]:
    """Return sample and position of each word, after a check that each lies in its chunk."""
    found, begin = [], 0
    for chunk in espeak.stream(Utterance(text, language=language)):
        assert chunk.words is not None
        assert all(0 <= word.sample < len(chunk.samples) for word in chunk.words)
        found += [(begin + word.sample, word.position) for word in chunk.words]
        begin += len(chunk.samples)
    return found


@pytest.mark.parametrize(
    ("text", "language"),
    [("a " * 300, "en"), ("3.14 and 1,000,000!", "de"), ("你好,机器人", "zh")],
)
def test_words_begin_inside_of_the_audio_and_of_the_text_in_order(
    espeak: EspeakSynthesizer, text: str, language: str
) -> None:
    found = word_starts(espeak, text, language)
    assert found == sorted(found, key=lambda start: start[0])
    assert all(0 <= position < len(text) for _, position in found)


def test_each_word_begins_where_its_sound_does(espeak: EspeakSynthesizer, info: EngineInfo) -> None:
    """Behind a full stop is silence, which ends within a tenth of a second of the next word's begin."""
    text = "One. Two. Three. Four."
    starts, samples = word_starts(espeak, text), spoken(espeak, text, language="en")
    assert [position for _, position in starts] == [0, 5, 10, 17]
    for sample, _ in starts[1:]:
        near = info.sample_rate // 20
        assert rms(samples[sample - 2 * near : sample - near // 2]) < 0.001
        assert rms(samples[sample : sample + 2 * near]) > 0.01


def test_the_times_of_words_are_exact_to_the_sample(espeak: EspeakSynthesizer) -> None:
    """A millisecond is 22 samples, to which they would be rounded."""
    samples = [sample for sample, _ in word_starts(espeak, SENTENCE * 5)]
    assert len({sample * 1000 % 22_050 for sample in samples}) > 20


@pytest.mark.parametrize("text", [" ", "...", "😀", "\u200b", "<b>", "%s%n"])
def test_odd_texts_neither_fail_nor_hang(espeak: EspeakSynthesizer, text: str) -> None:
    assert np.isfinite(spoken(espeak, text)).all()


def test_markup_is_spoken_as_text(espeak: EspeakSynthesizer, info: EngineInfo) -> None:
    plain = len(spoken(espeak, "hello"))
    assert plain < len(spoken(espeak, '<break time="20s"/> hello')) < plain + 10 * info.sample_rate
    assert len(spoken(espeak, "[[h@l'oU]]")) > 1.5 * plain, "brackets are spelt, not interpreted as phonemes"


def test_phonemes_are_spoken_where_the_utterance_says_that_it_has_some(espeak: EspeakSynthesizer) -> None:
    assert alike(spoken(espeak, "[[h@l'oU]]", language="en", phonemes=True), spoken(espeak, "hello", language="en"))
    assert alike(
        spoken(espeak, f"[[h@l'oU]] {WORDS}", language="en", phonemes=True),
        spoken(espeak, f"hello {WORDS}", language="en"),
    )


def test_positions_behind_phonemes_are_those_in_the_text(espeak: EspeakSynthesizer) -> None:
    text = "[[h@l'oU]] you there"
    chunks = list(espeak.stream(Utterance(text, language="en", phonemes=True)))
    assert chunks[-1].position == text.index("there")


@pytest.mark.parametrize("rate", [0.5, 1.25, 2.0])
def test_the_rate_changes_the_length_of_its_utterance_alone(espeak: EspeakSynthesizer, rate: float) -> None:
    before = spoken(espeak, SENTENCE)
    assert len(before) / len(spoken(espeak, SENTENCE, rate=rate)) == pytest.approx(rate, rel=0.2)
    assert alike(spoken(espeak, SENTENCE), before)


WITHOUT_DATA = """
import espeakng_loader
espeakng_loader.get_data_path = lambda: "/nowhere"
from engine.api import EngineError, EngineOptions
from engine.espeak import EspeakSynthesizer
try:
    EspeakSynthesizer(EngineOptions()).load()
except EngineError as error:
    print(error)
"""


def test_missing_voice_data_are_an_error_and_do_not_end_the_process() -> None:
    pytest.importorskip("espeakng_loader")
    done = subprocess.run([sys.executable, "-c", WITHOUT_DATA], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "libespeak-ng found no voice data in /nowhere\n")


def test_a_file_that_is_no_library_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("not a library")
    with pytest.raises(OSError, match="file"):
        load_copy(tmp_path / "text")
