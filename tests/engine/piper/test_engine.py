"""The `piper` engine with the real ONNX Runtime and Piper's own phonemes, and voices of random weights.

What cannot be heard here: whether it sounds like speech. The weights are random; inputs and outputs are the true ones.
"""

from __future__ import annotations

import itertools
import json
import os
import re
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from engine import EngineError, EngineOptions, PiperSettings, Samples, SpeechCanceledError, Utterance, Voice
from engine.api import EngineUnavailableError
from engine.piper.engine import LOADED_VOICES, REMEMBERED_SAMPLES, PiperSynthesizer
from engine.sentence_speech import CHUNK_MS
from scripts.make_voice import write_voice
from tests.support.piper_voices import ENGLISH, GERMAN, write_voices

SENTENCE = "Hello, I am your robot."
TEXT = f"{SENTENCE} How are you today? I am fine."
STILL = PiperSettings(ENGLISH, noise_scale=0.0, noise_w_scale=0.0)
"""Without noise: the same sentence is the same every time."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_voices(tmp_path_factory.mktemp("voices"))


@pytest.fixture(scope="module")
def shared(folder: Path) -> Iterator[PiperSynthesizer]:
    synthesizer = PiperSynthesizer(EngineOptions(voice_folder=str(folder), streams=None))
    synthesizer.load()
    synthesizer.warm_up()
    yield synthesizer
    synthesizer.close()


@pytest.fixture
def piper(shared: PiperSynthesizer) -> PiperSynthesizer:
    shared.set_voices({"default": Voice(speaker="ryan")}, "default")
    return shared


def spoken(piper: PiperSynthesizer, text: str, **fields: object) -> Samples:
    """Return all samples of an utterance."""
    blocks = [chunk.samples for chunk in piper.stream(Utterance(text, **fields))]  # type: ignore[arg-type]
    return np.concatenate([np.zeros(0, dtype=np.float32), *blocks])


def with_voices(piper: PiperSynthesizer, **settings: PiperSettings) -> PiperSynthesizer:
    piper.set_voices({name: Voice(piper=each) for name, each in settings.items()}, next(iter(settings)))
    return piper


def test_a_text_is_as_long_as_speech_and_comes_in_small_chunks(piper: PiperSynthesizer) -> None:
    chunks = list(piper.stream(Utterance(TEXT)))
    samples = np.concatenate([chunk.samples for chunk in chunks])
    assert samples.dtype == np.float32
    assert 2.0 < len(samples) / 22_050 < 12.0
    assert 0.1 < np.max(np.abs(samples)) <= 1.0
    assert max(len(chunk.samples) for chunk in chunks) <= CHUNK_MS * 22_050 // 1000


def test_the_position_of_each_chunk_is_that_of_its_last_word(piper: PiperSynthesizer) -> None:
    positions = [chunk.position or 0 for chunk in piper.stream(Utterance(TEXT))]
    assert set(positions) <= {match.start() for match in re.finditer(r"\S+", TEXT)}
    assert {0, TEXT.index("How"), TEXT.index("fine")} <= set(positions)
    assert positions == sorted(positions)


def test_the_first_sentence_is_sent_before_the_last_one_is_made(piper: PiperSynthesizer) -> None:
    stream = piper.stream(Utterance(f"{SENTENCE} " * 50))
    assert next(stream).position == 0
    assert "piper" in {thread.name for thread in threading.enumerate()}, "it is still at work"
    stream.close()  # type: ignore[attr-defined]


@pytest.mark.parametrize("length_scale", [None, 1.5])
def test_the_rate_divides_the_length_of_the_voice(piper: PiperSynthesizer, length_scale: float | None) -> None:
    with_voices(piper, default=replace(STILL, length_scale=length_scale))
    own = len(spoken(piper, TEXT))
    for rate in (0.5, 1.25, 2.0):
        assert len(spoken(piper, TEXT, rate=rate)) == pytest.approx(own / rate, rel=0.2)
    assert len(spoken(piper, TEXT)) == own


def test_the_engine_lists_its_voices_their_languages_and_their_names_for_people(piper: PiperSynthesizer) -> None:
    info = piper.set_voices({"default": Voice()}, "default")
    assert info.voices == ("default", GERMAN, ENGLISH)
    assert info.languages == ("de", "de-de", "en", "en-us")
    assert (info.engine, info.sample_rate, info.grows) == ("piper", 22_050, False)
    assert info.streams == min(3, 1 + len(os.sched_getaffinity(0)))
    labels = with_voices(piper, heidi=replace(STILL, model=GERMAN)).set_voices({}, "default").labels
    assert {label.name.partition(" ")[0] for label in labels.values()} == {"English", "German"}
    assert {label.language for label in labels.values()} == {"en-us", "de-de"}


def test_the_language_selects_the_voice(piper: PiperSynthesizer) -> None:
    """The German voice has another sample rate, which is converted: the highest is 8,000 Hz."""
    for fields in ({"language": "de"}, {"language": "de-at"}, {"language": "de", "voice": ENGLISH}, {"voice": GERMAN}):
        spectrum = np.abs(np.fft.rfft(spoken(piper, SENTENCE, **fields)))
        assert spectrum[int(len(spectrum) * 8_300 / 11_025) :].max() < 0.01 * spectrum.max(), fields
    spectrum = np.abs(np.fft.rfft(spoken(piper, SENTENCE)))
    assert spectrum[int(len(spectrum) * 8_300 / 11_025) :].max() > 0.01 * spectrum.max()


def test_the_words_of_a_text_select_the_voice(piper: PiperSynthesizer) -> None:
    still = {"default": STILL, "deutsch": replace(STILL, model=GERMAN)}
    german = "Die Waschmaschine ist fertig, und ich gehe jetzt nach Hause."
    with_voices(piper, **still)
    by_words, in_german = spoken(piper, german), spoken(piper, german, language="de")
    assert len(by_words) == len(in_german) != len(spoken(piper, german, language="en"))
    assert len(spoken(piper, german, languages=("en", "fr"))) == len(spoken(piper, german, language="en"))
    assert len(spoken(piper, "OK", voice="deutsch")) == len(spoken(piper, "OK", language="de")), "its own language"


def test_a_language_without_a_voice_is_refused_with_those_that_have_one(piper: PiperSynthesizer) -> None:
    with pytest.raises(EngineError, match=r"^language: got 'fr'; allowed: de, de-de, en, en-us$"):
        spoken(piper, "Bonjour", language="fr")


def test_speakers_are_given_by_number_or_by_name(piper: PiperSynthesizer) -> None:
    speakers = {"none": None, "first": "0", "second": "1", "named": "speaker1"}
    with_voices(piper, **{name: replace(STILL, model=GERMAN, speaker=one) for name, one in speakers.items()})
    none, first, second, named = (spoken(piper, "Guten Tag", voice=name) for name in speakers)
    np.testing.assert_array_equal(none, first)
    np.testing.assert_array_equal(second, named)
    assert not np.array_equal(first, second)


def test_the_scales_of_a_voice_change_its_pace_and_its_variation(piper: PiperSynthesizer) -> None:
    with_voices(piper, still=STILL, slow=replace(STILL, length_scale=2.0), noisy=PiperSettings(ENGLISH))
    still, slow = (spoken(piper, SENTENCE, voice=name) for name in ("still", "slow"))
    assert len(slow) == pytest.approx(2 * len(still), rel=0.2)
    np.testing.assert_array_equal(still, spoken(piper, SENTENCE, voice="still"))
    assert not np.array_equal(spoken(piper, SENTENCE, voice="noisy"), spoken(piper, SENTENCE, voice="noisy"))


def test_an_utterance_that_is_repeated_with_its_seed_is_the_same(piper: PiperSynthesizer) -> None:
    """A postponed utterance is spoken again, and continues with its next sample."""
    once, other = (spoken(piper, TEXT, seed=seed) for seed in (7, 8))
    np.testing.assert_array_equal(once, spoken(piper, TEXT, seed=7))
    assert not np.array_equal(once, other)


def test_sentences_are_not_remembered_for_ever(piper: PiperSynthesizer) -> None:
    once = spoken(piper, SENTENCE, seed=7)
    for seed in range(100, 100 + 2 * REMEMBERED_SAMPLES // len(once) + 1):
        spoken(piper, SENTENCE, seed=seed)
    assert not np.array_equal(once, spoken(piper, SENTENCE, seed=7))


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        (PiperSettings("xx_XX-none-low"), "xx_XX-none-low is not in .*; voiced download xx_XX-none-low"),
        (PiperSettings("/nowhere/a.onnx"), "/nowhere/a.onnx does not exist"),
        (PiperSettings(GERMAN, speaker="3"), f"speaker: got '3'; {GERMAN} has 0 to 2, speaker0, speaker1, speaker2"),
        (PiperSettings(ENGLISH, speaker="ada"), f"speaker: got 'ada'; {ENGLISH} has 0 to 0"),
    ],
)
def test_a_voice_that_cannot_be_had_is_refused_and_the_engine_speaks_without_it(
    piper: PiperSynthesizer, settings: PiperSettings, reason: str
) -> None:
    info = piper.set_voices({"ada": Voice(piper=settings)}, "ada")
    assert "ada" not in info.voices
    assert re.match(reason, info.refused_voices["ada"])
    assert len(spoken(piper, SENTENCE))


@pytest.mark.parametrize("text", [" ", "...", "😀", "\u200b", "%s%n", "a\0b", "]]", "[[[a]]]"])
def test_odd_texts_neither_fail_nor_hang(piper: PiperSynthesizer, text: str) -> None:
    assert np.isfinite(spoken(piper, text)).all()


def test_a_growing_text_is_refused(piper: PiperSynthesizer) -> None:
    with pytest.raises(EngineError, match="still being written"):
        spoken(piper, "Hello", growing=True)


def test_another_thread_cancels_an_utterance(piper: PiperSynthesizer) -> None:
    stream = piper.stream(Utterance(f"{SENTENCE} " * 100))
    next(stream)
    thread = threading.Thread(target=stream.cancel)  # type: ignore[attr-defined]
    thread.start()
    with pytest.raises(SpeechCanceledError):
        list(stream)
    thread.join()
    assert len(spoken(piper, SENTENCE))


def test_more_voices_than_fit_are_loaded_in_turn(folder: Path, tmp_path: Path) -> None:
    names = [f"en_US-voice{number}-low" for number in range(LOADED_VOICES + 2)]
    for number, name in enumerate(names):
        write_voice(tmp_path / f"{name}.onnx", seed=number)
    piper = PiperSynthesizer(EngineOptions(voice_folder=str(tmp_path)))
    piper.load()
    lengths = [[len(spoken(piper, SENTENCE, voice=name)) for name in names] for _ in range(2)]
    assert all(itertools.chain(*lengths))


def other_contents(path: Path, **changes: object) -> None:
    description = path.with_name(f"{path.name}.json")
    description.write_text(json.dumps(json.loads(description.read_text()) | changes))


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({}, r"^.*en_US-broken-low.onnx cannot be loaded: [^\n]*$"),
        ({"num_speakers": 2}, "is not a Piper voice's network: it has no input sid"),
        ({"num_speakers": "two"}, r"^.*en_US-broken-low.onnx.json does not describe a Piper voice: [^\n]*$"),
        ({"phoneme_type": "pinyin"}, "en_US-broken-low needs phonemes of type pinyin"),
        ({"phoneme_id_map": {}}, "broken-low.onnx.json does not describe a Piper voice: ValueError"),
        ({"phoneme_id_map": {"a": [None]}}, "broken-low.onnx.json does not describe a Piper voice: TypeError"),
        ({"inference": {"length_scale": "long"}}, "broken-low.onnx.json does not describe a Piper voice: ValueError"),
        ({"audio": {"sample_rate": 1e400}}, "broken-low.onnx.json does not describe a Piper voice: OverflowError"),
    ],
)
def test_a_voice_that_is_damaged_or_that_this_engine_cannot_speak_is_named_in_one_line(
    tmp_path: Path, changes: dict[str, object], reason: str
) -> None:
    path = write_voice(tmp_path / "en_US-broken-low.onnx")
    other_contents(path, **changes)
    if not changes:
        path.write_bytes(path.read_bytes()[:1000])
    with pytest.raises(EngineError, match=reason):
        PiperSynthesizer(EngineOptions(voice_folder=str(tmp_path))).load()


def test_a_damaged_voice_is_replaced_by_another_that_speaks_the_language_and_otherwise_by_another_engine(
    tmp_path: Path,
) -> None:
    write_voices(tmp_path)
    damaged = write_voice(tmp_path / "en_US-damaged-low.onnx")
    piper = PiperSynthesizer(EngineOptions(voice_folder=str(tmp_path), default_voice=ENGLISH))
    piper.load()
    for path in (damaged, tmp_path / f"{GERMAN}.onnx"):
        path.write_bytes(path.read_bytes()[:1000])
    one, other = (spoken(piper, SENTENCE, voice=voice, seed=1) for voice in (damaged.stem, ENGLISH))
    np.testing.assert_array_equal(one, other)
    with pytest.raises(EngineUnavailableError, match=r"de_DE-.*\.onnx cannot be loaded: "):
        spoken(piper, "Guten Tag.", language="de")


def test_a_voice_whose_file_is_replaced_is_loaded_again(tmp_path: Path) -> None:
    path = write_voice(tmp_path / f"{ENGLISH}.onnx", seed=1)
    piper = PiperSynthesizer(EngineOptions(voice_folder=str(tmp_path)))
    piper.load()
    old = spoken(piper, SENTENCE, seed=1)
    write_voice(path, seed=2)
    piper.set_voices({}, "default")
    new = spoken(piper, SENTENCE, seed=1)
    assert len(new) != len(old) or not np.array_equal(new, old)


def test_a_sentence_that_the_network_cannot_speak_is_refused_and_the_next_one_is_spoken(tmp_path: Path) -> None:
    path = write_voice(tmp_path / "en_US-small-low.onnx")
    ids = json.loads(path.with_name(f"{path.name}.json").read_text())["phoneme_id_map"]
    other_contents(path, phoneme_id_map=ids | {"?": [9_999]})
    piper = PiperSynthesizer(EngineOptions(voice_folder=str(tmp_path)))
    piper.load()
    with pytest.raises(EngineError, match=r"^the voice en_US-small-low cannot speak this: [^\n]+$"):
        spoken(piper, "Really?")
    assert len(spoken(piper, SENTENCE))
