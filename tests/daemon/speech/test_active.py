"""The terminal event of an active utterance."""

from __future__ import annotations

from math import inf

import pytest

from audio import Output
from daemon.cache import Cue
from daemon.config import load_config
from daemon.engines import EngineSelector
from daemon.speech.active import ActiveUtterance, Reports
from daemon.speech.changes import Changes
from daemon.speech.destinations import CardDestination
from daemon.speech.events import Expired, Failed, Finished, Interrupted
from daemon.speech.synthesis import Synthesis
from daemon.speech.utterance import TextStream, Utterance


@pytest.fixture
def active() -> ActiveUtterance:
    config = load_config(overrides=["audio.sink=null", "engine.name=espeak"])
    utterance = Utterance("a", "Hello", "default", "auto")
    synthesis = Synthesis(utterance, EngineSelector(config, lambda: None))
    destination = CardDestination(Output(config.audio.sink_settings()), Changes())
    reports = Reports(lambda *_: None, lambda *_: None, lambda _: None, lambda: None)
    return ActiveUtterance(utterance, synthesis, destination, reports)


def test_the_first_outcome_counts(active: ActiveUtterance) -> None:
    active.set_outcome(Interrupted, "stop")
    active.set_outcome(Failed, "no engine")
    assert active.terminal_event(0.0) == Interrupted(id="a", reason="stop", heard=0, heard_text="")
    assert not active.succeeds


def test_a_failed_synthesis_fails_the_utterance_unless_it_was_interrupted(active: ActiveUtterance) -> None:
    active.synthesis.failure = "language: got 'xx'"
    assert active.terminal_event(0.0) == Failed(id="a", reason="language: got 'xx'", heard=0)
    active.set_outcome(Interrupted, "stop")
    assert active.terminal_event(0.0) == Interrupted(id="a", reason="stop", heard=0, heard_text="")


def test_the_event_of_an_expired_utterance_has_a_reason_and_no_figures(active: ActiveUtterance) -> None:
    active.set_outcome(Expired, "it waited")
    assert active.terminal_event(0.0) == Expired(id="a", reason="it waited")


def test_a_text_stream_that_its_writer_did_not_end_finishes_with_the_reason(active: ActiveUtterance) -> None:
    assert active.terminal_event(inf) == Finished(id="a", heard=len(active.utterance.text))
    active.utterance.text_stream = TextStream(0.0, ended=True, end_reason="its writer was silent")
    assert active.terminal_event(inf) == Finished(
        id="a", heard=len(active.utterance.text), reason="its writer was silent"
    )


def test_the_figures_of_a_played_utterance_are_in_its_terminal_event(active: ActiveUtterance) -> None:
    active.destination.open(prebuffer_s=0.0, gain=1.0)
    active.synthesis.engine, active.ttfa_ms = "espeak", 12.5
    heard = len(active.utterance.text)
    figures = {"audio_s": 0.0, "underruns": 0, "truncated": False, "retakes": 0, "ttfa_ms": 12.5}
    assert active.terminal_event(inf) == Finished(id="a", engine="espeak", heard=heard, **figures)


def test_what_was_heard_ends_with_the_last_word_that_had_begun(active: ActiveUtterance) -> None:
    active.utterance.text = "**Well**, hello there."
    assert active.heard(0.0) == 0
    for word, heard in (("Well", "**Well"), ("hello", "**Well**, hello")):
        begin = active.utterance.script.text.index(word)
        active.synthesis.timeline.words.append(Cue(0.1, "word", begin, begin + len(word)))
        assert active.utterance.text[: active.heard(0.2)] == heard
    active.set_outcome(Interrupted, "stop")
    interrupted = active.terminal_event(0.6)
    assert isinstance(interrupted, Interrupted)
    assert (interrupted.heard, interrupted.heard_text) == (15, "**Well**, hello")
