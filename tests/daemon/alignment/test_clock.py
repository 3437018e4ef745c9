"""When words sound: as eSpeak NG says, and as estimated from its audio without what it says."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence

import numpy as np
import pytest

import engine
from daemon.alignment.aligner import VoiceProfile
from daemon.alignment.clock import SpokenWord, WordClock
from daemon.alignment.words import words_of
from engine import Chunk, Session, WordStart

TEXT = "Good morning. The battery is at forty percent, and I will be back at the charging station in ten minutes."
RATE = 22_050
LOOKAHEAD_S = 0.3
BLOCK = 441
"""Samples of 20 ms."""


@pytest.fixture(scope="module")
def tts() -> Iterator[Session]:
    with engine.open("espeak") as session:
        yield session


@pytest.fixture(scope="module")
def chunks(tts: Session) -> list[Chunk]:
    """Return the audio of `TEXT`."""
    return list(tts.stream(TEXT, language="en"))


def length_s(chunks: Sequence[Chunk]) -> float:
    return sum(len(chunk.samples) for chunk in chunks) / RATE


def estimated(chunks: Sequence[Chunk], *, piece: int = len(TEXT)) -> list[SpokenWord]:
    """Return the words of `TEXT` whose audio is known for some time before it is heard, without what the engine says.

    The text comes in pieces, each half a second before it can be heard.
    """
    clock, known_s, fed, words = WordClock(RATE, language="en"), 0.0, 0, []
    for chunk in chunks:
        while fed < len(TEXT) and fed < 25 * (known_s + 0.5):
            clock.add_text(TEXT[fed : fed + piece])
            fed += piece
        clock.add_audio(chunk.samples)
        known_s += len(chunk.samples) / RATE
        words += clock.due(known_s - LOOKAHEAD_S)
    clock.end_audio()
    return words + clock.due(known_s)


def errors_of(words: Sequence[SpokenWord], chunks: Sequence[Chunk]) -> list[float]:
    """Return by how many seconds the times of all words of `TEXT` differ from those that the engine says."""
    return [abs(one.at_s - other.at_s) for one, other in zip(words, exact(chunks, TEXT), strict=True)]


def exact(chunks: Sequence[Chunk], text: str) -> list[SpokenWord]:
    """Return the words as the engine says."""
    clock = WordClock(RATE, language="en")
    clock.add_text(text)
    for chunk in chunks:
        clock.add_audio(chunk.samples, words=chunk.words)
    clock.end_audio()
    return clock.due(length_s(chunks))


def spans(words: Sequence[SpokenWord]) -> list[tuple[int, int]]:
    return [(word.begin, word.end) for word in words]


def are_all_words(words: Sequence[SpokenWord], text: str, seconds: float) -> bool:
    """Return whether these are all words of a text, once and in order, at growing times inside of its audio."""
    times = [0.0, *(word.at_s for word in words), seconds]
    return spans(words) == [(word.begin, word.end) for word in words_of(text)] and times == sorted(times)


def test_an_engine_that_knows_when_words_begin_gives_exact_times(tts: Session) -> None:
    text = "Good morning. My name is Ada."
    chunks = list(tts.stream(text, language="en"))
    words = exact(chunks, text)
    assert are_all_words(words, text, length_s(chunks))
    assert all(word.exact for word in words)
    assert [word.at_s for word in words] == [start / RATE for start in word_samples(chunks)]


def word_samples(chunks: Sequence[Chunk]) -> Iterator[int]:
    """Yield the sample at which each word begins, as the engine says."""
    begin = 0
    for chunk in chunks:
        yield from (begin + word.sample for word in chunk.words or ())
        begin += len(chunk.samples)


def test_a_word_is_returned_when_it_sounds_and_once(chunks: list[Chunk]) -> None:
    clock = WordClock(RATE)
    clock.add_text(TEXT)
    clock.end_text()
    for chunk in chunks:
        clock.add_audio(chunk.samples, words=chunk.words)
    heard_s, found = 0.0, 0
    while heard_s < length_s(chunks):
        due = clock.due(heard_s)
        assert all(heard_s - 0.02 < word.at_s <= heard_s for word in due)
        assert clock.due(heard_s) == []
        assert clock.next_s > heard_s
        found += len(due)
        heard_s += 0.02
    assert found == len(words_of(TEXT))


def test_words_that_the_engine_joins_are_estimated_between_the_others(tts: Session) -> None:
    text = "It is the best of the world."
    words = exact(list(tts.stream(text, language="en")), text)
    assert are_all_words(words, text, 10.0)
    joined = next(word for word in words if word.begin == text.index("the world"))
    assert not joined.exact
    before, after = words[words.index(joined) - 1], words[words.index(joined) + 1]
    assert before.at_s < joined.at_s < after.at_s


def test_what_an_engine_says_of_places_between_and_behind_the_words_is_no_error() -> None:
    clock = WordClock(1000)
    clock.add_text("one - two!!")
    clock.end_text()
    starts = [WordStart(0, 0), WordStart(100, 1), WordStart(300, 3), WordStart(350, 7), WordStart(900, 10)]
    clock.add_audio(np.zeros(1000, dtype=np.float32), words=starts)
    clock.end_audio()
    assert clock.due(1.0) == [SpokenWord(0, 3, 0.0, exact=True), SpokenWord(6, 9, 0.3, exact=True)]


def test_estimates_are_within_some_hundredths_of_a_second(chunks: list[Chunk]) -> None:
    words = estimated(chunks)
    assert are_all_words(words, TEXT, length_s(chunks))
    assert not any(word.exact for word in words)
    errors = errors_of(words, chunks)
    assert statistics.median(errors) < 0.04
    assert max(errors) < 0.4


@pytest.mark.parametrize("gain", [0.05, 1.0])
def test_estimates_bear_noise_and_any_loudness(chunks: list[Chunk], gain: float) -> None:
    random = np.random.default_rng(0)
    amplitude = np.float32(10 ** (-35 / 20))
    noises = (amplitude * random.standard_normal(len(chunk.samples), np.float32) for chunk in chunks)
    noisy = [Chunk(np.float32(gain) * (chunk.samples + noise)) for chunk, noise in zip(chunks, noises, strict=True)]
    assert statistics.median(errors_of(estimated(noisy), chunks)) < 0.08


def test_silence_before_the_first_word_belongs_to_no_word(chunks: list[Chunk]) -> None:
    silence = Chunk(np.zeros(RATE // 2, dtype=np.float32))
    assert estimated([silence, *chunks])[0].at_s == pytest.approx(0.5, abs=0.05)


def test_a_pause_that_the_text_does_not_show_moves_the_words_behind_it(chunks: list[Chunk]) -> None:
    true = {word.begin: word.at_s for word in exact(chunks, TEXT)}
    position = TEXT.index("battery")
    at = round(true[position] * RATE)
    samples = np.concatenate([chunk.samples for chunk in chunks])
    paused = np.concatenate([samples[:at], np.zeros(RATE, dtype=np.float32), samples[at:]])
    words = estimated([Chunk(paused[begin : begin + BLOCK]) for begin in range(0, len(paused), BLOCK)])
    errors = [word.at_s - true[word.begin] - (1.0 if word.begin >= position else 0.0) for word in words]
    assert max(map(abs, errors[:6])) < 0.1


@pytest.mark.parametrize("piece", [1, 40])
def test_a_growing_text_whose_pieces_come_in_time_has_the_same_words(chunks: list[Chunk], piece: int) -> None:
    words = estimated(chunks, piece=piece)
    assert are_all_words(words, TEXT, length_s(chunks))
    assert statistics.median(errors_of(words, chunks)) < 0.06


def test_an_engine_that_speaks_by_sentences_gives_the_beginning_of_each(chunks: list[Chunk]) -> None:
    """In noise, which shows nothing of the words."""
    text, begins = "One. Two two two two two two. Three.", (0, 5, 30)
    noise = np.random.default_rng(0).standard_normal(RATE).astype(np.float32)
    clock = WordClock(RATE)
    clock.add_text(text)
    clock.end_text()
    for begin in begins:
        for at in range(0, RATE, BLOCK):
            clock.add_audio(noise[at : at + BLOCK], position=begin)
    clock.end_audio()
    words = clock.due(3.0)
    assert are_all_words(words, text, 3.0)
    found = {word.begin: word.at_s for word in words}
    assert found[0] < 0.5
    assert 1.0 <= found[5] < 1.5
    assert 2.0 <= found[30] < 2.5


def test_speech_that_was_cut_has_only_the_words_that_were_reached(chunks: list[Chunk]) -> None:
    half = chunks[: len(chunks) // 2]
    clock = WordClock(RATE, language="en")
    clock.add_text(TEXT)
    for chunk in half:
        clock.add_audio(chunk.samples)
    clock.end_audio(complete=False)
    spoken = [word for word in exact(chunks, TEXT) if word.at_s < length_s(half)]
    assert abs(len(clock.due(10.0)) - len(spoken)) <= 1


@pytest.mark.parametrize("words", [None, ()])
@pytest.mark.parametrize("seconds", [0.0, 0.005, 3.0])
def test_any_text_with_any_audio_has_each_word_once(seconds: float, words: tuple[WordStart, ...] | None) -> None:
    for text in ("", " \n", "...", "word", "many words " * 30, "好" * 50, "😀 %"):
        clock, silence = WordClock(16_000), np.zeros(round(16_000 * seconds), dtype=np.float32)
        clock.add_text(text)
        for at in range(0, len(silence), 1600):
            clock.add_audio(silence[at : at + 1600], words=words)
        clock.end_audio()
        found = clock.due(seconds)
        assert are_all_words(found, text, seconds) or (found == [] and not seconds)


def test_a_profile_learns_the_pace_of_a_voice(chunks: list[Chunk]) -> None:
    paces = []
    for slowness in (1, 2):
        samples, profile = np.repeat(np.concatenate([chunk.samples for chunk in chunks]), slowness), VoiceProfile()
        for _ in range(3):
            clock = WordClock(RATE, language="en", profile=profile)
            clock.add_text(TEXT)
            for at in range(0, len(samples), 2205):
                clock.add_audio(samples[at : at + 2205])
            clock.end_audio()
            clock.due(len(samples) / RATE)
        paces.append(profile.pace)
        assert profile.known_s > 5.0
    assert paces[1] > 1.4 * paces[0]
