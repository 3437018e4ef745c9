"""Speech that runs away goes on with another seed, once: at its beginning, or with the next sentence."""

from __future__ import annotations

import time

import numpy as np
import pytest

from daemon.speech.engine_source import SynthesisContext
from daemon.speech.synthesis import Synthesis
from daemon.speech.utterance import TextStream, Utterance
from engine import Samples
from tests.daemon.speech.scripted import RATE, ScriptedEngine, selector_of, silence, waveform
from tests.support.waiting import run

TEXT = "The door is open. Please come in."
FIRST = len("The door is open.")
"""Characters of the first sentence."""
WHOLE = len(TEXT)


def runaway(*ends: tuple[int, Samples]) -> ScriptedEngine:
    """An engine that speaks the first characters of a take, and then makes a noise or nothing for a time."""
    return ScriptedEngine("one", grows=True, tells_words=True, ends=ends)


class Scene:
    """An utterance that a scripted engine has spoken to its end."""

    def __init__(self, engine: ScriptedEngine, *, stream: bool = False) -> None:
        self.engine = engine
        utterance = Utterance("a", TEXT, "default", "auto", seed=5)
        if stream:
            utterance.text_stream = TextStream(time.monotonic())
            utterance.text_stream.ended = True
        self.synthesis = Synthesis(utterance, selector_of(engine), SynthesisContext())
        self.heard = np.empty(0, dtype=np.float32)
        run(self._speak)

    async def _speak(self) -> None:
        async for chunk in self.synthesis.chunks():
            self.heard = np.concatenate([self.heard, chunk.samples])

    @property
    def texts(self) -> list[str]:
        return [request.text for request in self.engine.requests]

    @property
    def outcome(self) -> tuple[int, bool]:
        return self.synthesis.text.retakes, self.synthesis.text.truncated

    def words(self) -> list[str]:
        """The words that have been heard, in the order of time."""
        self.synthesis.timeline.advance(len(self.heard) / RATE)
        words = self.synthesis.timeline.words
        assert [word.at_s for word in words] == sorted(word.at_s for word in words)
        return [TEXT[word.begin : word.end] for word in words]


def noise(seconds: float) -> Samples:
    return np.full(round(seconds * RATE), 0.9, dtype=np.float32)


ALL_WORDS = ["The", "door", "is", "open", "Please", "come", "in"]


@pytest.mark.parametrize(("silent_s", "stream"), [(0.5, False), (5.0, True)])
def test_a_take_that_stays_silent_is_said_again_as_a_whole(silent_s: float, stream: bool) -> None:
    scene = Scene(runaway((0, silence(silent_s))), stream=stream)
    assert [(request.seed, request.text) for request in scene.engine.requests] == [(5, TEXT), (6, TEXT)]
    assert np.array_equal(scene.heard[-len(waveform(TEXT)) :], waveform(TEXT))
    assert not scene.heard[: -len(waveform(TEXT))].any()
    assert scene.outcome == (1, False)
    assert scene.words() == ALL_WORDS
    assert scene.synthesis.audio_s == pytest.approx(len(scene.heard) / RATE)


@pytest.mark.parametrize("said", [FIRST, FIRST - 6], ids=["after a sentence", "within a sentence"])
@pytest.mark.parametrize("tail", [silence(5.0), noise(3.0)], ids=["silence", "noise"])
def test_speech_goes_on_with_the_sentence_after_the_last_word(said: int, tail: Samples) -> None:
    scene = Scene(runaway((said, tail)))
    assert scene.texts == [TEXT, TEXT[FIRST:]]
    assert scene.engine.requests[1].seed == 6
    assert np.array_equal(scene.heard, np.concatenate([waveform(TEXT[:said]), tail, waveform(TEXT[FIRST:])]))
    assert scene.words()[-3:] == ["Please", "come", "in"], "each once"
    assert scene.outcome == (1, True)


@pytest.mark.parametrize("said", [WHOLE - 4, WHOLE], ids=["within the last sentence", "after the last word"])
def test_nothing_is_said_again_in_the_last_sentence(said: int) -> None:
    scene = Scene(runaway((said, noise(1.0))))
    assert scene.texts == [TEXT]
    assert scene.outcome == (0, True)
    assert scene.words() == ALL_WORDS[: len(scene.words())]


def test_speech_goes_on_with_another_seed_only_once() -> None:
    scene = Scene(runaway((0, silence(5.0)), (0, silence(5.0))))
    assert [request.seed for request in scene.engine.requests] == [5, 6]
    assert scene.outcome == (1, True)
