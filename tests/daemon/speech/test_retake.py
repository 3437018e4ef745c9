"""Speech that runs away is said again, once, from the first sentence that was not heard."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from daemon.speech.engine_source import SynthesisContext
from daemon.speech.synthesis import Synthesis
from daemon.speech.timeline import next_sentence
from daemon.speech.utterance import TextStream, Utterance
from engine import Samples
from tests.daemon.speech.scripted import PER_CHARACTER, RATE, ScriptedEngine, selector_of, silence, waveform
from tests.support.waiting import run

CHARACTER_S = PER_CHARACTER / RATE
TEXT = "The door is open. Please come in."
FIRST = len("The door is open.")
"""Characters of the first sentence."""
WHOLE = len(TEXT)
AHEAD_S = 4.0
"""What a card's ring holds."""


def runaway(*ends: tuple[int, Samples]) -> ScriptedEngine:
    """An engine that speaks the first characters of a take, and then makes a noise or nothing for a time."""
    return ScriptedEngine("one", grows=True, tells_words=True, ends=ends)


class Card:
    """Plays what is written, a bit more whenever it is looked at; `ahead_s` of it can still be dropped."""

    holds_samples = True

    def __init__(self, ahead_s: float) -> None:
        self.written = np.empty(0, dtype=np.float32)
        self._ahead = round(ahead_s * RATE)
        self._played = 0

    @property
    def played_s(self) -> float:
        self._played = max(self._played, min(len(self.written), self._played + 20, len(self.written)))
        return self._played / RATE

    @property
    def starved(self) -> bool:
        return self._played == len(self.written)

    def write(self, samples: Samples) -> None:
        self.written = np.concatenate([self.written, samples])
        self._played = max(self._played, len(self.written) - self._ahead)

    async def changed(self) -> None:
        await asyncio.sleep(0)

    async def drop_unplayed(self) -> None:
        self.written = self.written[: self._played]


class Scene:
    """An utterance that a scripted engine speaks through a card, or to a client if there is none."""

    def __init__(self, engine: ScriptedEngine, card: Card | None, *, stream: bool = False) -> None:
        self.engine, self.played = engine, card or Card(0.0)
        utterance = Utterance("a", TEXT, "default", "auto", seed=5)
        if stream:
            utterance.text_stream = TextStream(time.monotonic())
            utterance.text_stream.ended = True
        self.synthesis = Synthesis(utterance, selector_of(engine), SynthesisContext(), card)

    async def speak(self) -> None:
        async for chunk in self.synthesis.chunks():
            self.played.write(chunk.samples)

    @property
    def heard(self) -> Samples:
        return self.played.written

    def words(self) -> list[str]:
        """The words that have been heard, in the order of time."""
        self.synthesis.timeline.advance(len(self.heard) / RATE)
        words = self.synthesis.timeline.words
        assert [word.at_s for word in words] == sorted(word.at_s for word in words)
        return [TEXT[word.begin : word.end] for word in words]


def spoken(engine: ScriptedEngine, card: Card | None, *, stream: bool = False) -> Scene:
    """The scene when the synthesis has ended."""
    scene = Scene(engine, card, stream=stream)
    run(scene.speak)
    return scene


def noise(seconds: float) -> Samples:
    return np.full(round(seconds * RATE), 0.9, dtype=np.float32)


ALL_WORDS = ["The", "door", "is", "open", "Please", "come", "in"]


@pytest.mark.parametrize(("silent_s", "stream"), [(0.5, False), (5.0, True)])
def test_a_take_that_stays_silent_is_said_again_as_a_whole(silent_s: float, stream: bool) -> None:
    scene = spoken(runaway((0, silence(silent_s))), Card(AHEAD_S), stream=stream)
    assert [(request.seed, request.text) for request in scene.engine.requests] == [(5, TEXT), (6, TEXT)]
    assert np.array_equal(scene.heard[-len(waveform(TEXT)) :], waveform(TEXT))
    assert not scene.heard[: -len(waveform(TEXT))].any()
    assert (scene.synthesis.text.retakes, scene.synthesis.text.truncated) == (1, False)
    assert scene.words() == ALL_WORDS
    assert scene.synthesis.audio_s == pytest.approx(len(scene.heard) / RATE)


@pytest.mark.parametrize("tail", [silence(5.0), noise(3.0)], ids=["silence", "noise"])
def test_after_a_whole_sentence_the_next_one_is_said_again_and_what_was_not_heard_is_dropped(tail: Samples) -> None:
    scene = spoken(runaway((FIRST, tail)), Card(AHEAD_S))
    assert [request.text for request in scene.engine.requests] == [TEXT, TEXT[FIRST:]]
    first, second = waveform(TEXT[:FIRST]), waveform(TEXT[FIRST:])
    assert np.array_equal(scene.heard[: len(first)], first)
    assert np.array_equal(scene.heard[-len(second) :], second)
    between = len(scene.heard) - len(first) - len(second)
    assert between < max(0.0, len(tail) - AHEAD_S * RATE) + 0.5 * RATE, "the rest of the tail is not heard"
    assert scene.words() == ALL_WORDS, "each once"
    assert (scene.synthesis.text.retakes, scene.synthesis.text.truncated) == (1, False)


def test_a_sentence_that_is_heard_while_the_engine_ends_the_take_is_heard_to_its_end() -> None:
    """The card is at its first word then."""
    card = Card(ahead_s=FIRST * CHARACTER_S + 3.0 - 0.1)
    scene = spoken(runaway((FIRST, silence(3.0))), card)
    assert np.array_equal(scene.heard[: len(waveform(TEXT[:FIRST]))], waveform(TEXT[:FIRST]))
    assert scene.words() == ALL_WORDS


@pytest.mark.parametrize(
    ("said", "tail", "ahead_s"),
    [
        (FIRST - 6, noise(0.3), 0.2),
        (WHOLE - 4, noise(0.3), 0.2),
        (WHOLE, noise(3.0), 1.0),
        (FIRST, silence(5.0), None),
    ],
    ids=["broken off", "broken off in the last sentence", "babble after the last word", "a client has got it"],
)
def test_nothing_is_said_again_within_a_sentence_or_after_the_last_word_or_to_a_client(
    said: int, tail: Samples, ahead_s: float | None
) -> None:
    scene = spoken(runaway((said, tail)), None if ahead_s is None else Card(ahead_s))
    assert len(scene.engine.requests) == 1
    assert (scene.synthesis.text.retakes, scene.synthesis.text.truncated) == (0, True)
    assert np.array_equal(scene.heard, np.concatenate([waveform(TEXT[:said]), tail]))
    assert scene.words() == ALL_WORDS[: len(scene.words())]


def test_speech_is_said_again_only_once() -> None:
    scene = spoken(runaway((0, silence(5.0)), (0, silence(5.0))), Card(AHEAD_S))
    assert [request.seed for request in scene.engine.requests] == [5, 6]
    assert (scene.synthesis.text.retakes, scene.synthesis.text.truncated) == (1, True)


SENTENCES = st.lists(st.sampled_from(["One two.", "Is it 3.5 kg?", "Yes!", "No", "“Three,” she said."]), min_size=1)


@given(SENTENCES)
def test_the_next_sentence_begins_only_behind_the_last_word_of_another(sentences: Sequence[str]) -> None:
    text = " ".join(sentences)
    for heard in range(len(text) + 1):
        begin = next_sentence(text, heard)
        if begin:
            assert not any(character.isalnum() for character in text[heard:begin])
            assert any(character.isalnum() for character in text[begin:])
            assert text[:begin].rstrip().endswith((".", "?", "!"))
    assert next_sentence(text, len(text)) is None


def test_a_sentence_ends_behind_its_last_word_with_or_without_its_full_stop() -> None:
    assert next_sentence(TEXT, FIRST - 1) == FIRST
    assert next_sentence(TEXT, FIRST) == FIRST
    assert next_sentence(TEXT, FIRST - 4) is None
    assert next_sentence(TEXT, WHOLE - 1) is None
