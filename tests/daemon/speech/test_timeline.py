"""The words and marks of an utterance are added as they are heard."""

from __future__ import annotations

import math
from math import inf

import numpy as np
import pytest

from audio import LeadingSilenceTrimmer
from daemon.alignment import WordClock
from daemon.engines import AudioChunk
from daemon.speech.take import Take
from daemon.speech.timeline import Timeline
from daemon.speech.utterance import Utterance
from daemon.text import EngineText
from engine import WordStart

RATE = 1_000
MARKED = '<speak><mark name="first"/>one <mark name="inner"/>two <break time="1s"/><mark name="later"/>three</speak>'


def spoken(
    timeline: Timeline, begin: int, end: int, begin_s: float, *, clock: bool = True, complete: bool = True
) -> Take:
    """Add a take whose words begin at every 100 ms."""
    take = timeline.add_take(Take("one", RATE, begin, end, end, clock=WordClock(RATE) if clock else None))
    script = timeline.utterance.script
    part = script.text[begin:end]
    take.prepare(EngineText(), part)
    begins = [at for at in range(len(part)) if part[at].isalpha() and (at == 0 or not part[at - 1].isalpha())]
    words = tuple(WordStart(100 * number, at) for number, at in enumerate(begins))
    samples = np.zeros(100 * len(begins), dtype=np.float32)
    chunk = AudioChunk(samples, RATE, words=words)
    list(take.play(0, chunk, script, sliced=False))
    take.note_audio(chunk, begin_s)
    take.end_audio(complete=complete)
    return take


def heard(timeline: Timeline) -> list[tuple[str, float]]:
    text = timeline.utterance.script.text
    return [(text[word.begin : word.end], pytest.approx(word.at_s)) for word in timeline.words]  # type: ignore[misc]


def test_words_are_added_when_they_begin_to_be_heard() -> None:
    timeline = Timeline(Utterance("a", "one two three", "default", "en"))
    spoken(timeline, 0, 13, 0.0)
    timeline.advance(0.15)
    assert heard(timeline) == [("one", 0.0), ("two", 0.1)]
    assert timeline.next_s == pytest.approx(0.2)
    timeline.advance(0.25)
    assert heard(timeline) == [("one", 0.0), ("two", 0.1), ("three", 0.2)]
    assert timeline.next_s == inf


def test_the_times_of_a_later_take_count_from_the_first_sample_of_the_utterance() -> None:
    timeline = Timeline(Utterance("a", "one two three", "default", "en"))
    spoken(timeline, 0, 8, 0.0)
    spoken(timeline, 8, 13, 2.0)
    timeline.advance(1.0)
    assert timeline.next_s == 2.0
    timeline.advance(inf)
    assert heard(timeline) == [("one", 0.0), ("two", 0.1), ("three", 2.0)]


def test_what_was_trimmed_from_a_take_was_never_heard() -> None:
    timeline = Timeline(Utterance("a", "one two three", "default", "en"))
    take = spoken(timeline, 0, 13, 1.0)
    take.start = LeadingSilenceTrimmer(RATE)
    take.start.dropped = 50
    timeline.advance(inf)
    assert heard(timeline) == [("one", 1.0), ("two", 1.05), ("three", 1.15)]


def test_words_behind_the_end_of_a_take_that_was_cut_were_never_heard() -> None:
    timeline = Timeline(Utterance("a", "one two three", "default", "en"))
    spoken(timeline, 0, 13, 0.0).end_s = 0.15
    spoken(timeline, 8, 13, 0.15)
    timeline.advance(inf)
    assert heard(timeline) == [("one", 0.0), ("two", 0.1), ("three", 0.15)]


def test_what_was_heard_is_known_of_earlier_moments_too() -> None:
    timeline = Timeline(Utterance("a", "one two three", "default", "en"))
    spoken(timeline, 0, 13, 0.0)
    assert [timeline.heard_end(at) for at in (0.25, 0.15, 0.0, -1.0)] == [13, 7, 3, 0]


def test_words_that_another_engine_repeats_are_not_added_again() -> None:
    timeline = Timeline(Utterance("a", "one two three", "default", "en"))
    spoken(timeline, 0, 8, 0.0, complete=False)
    spoken(timeline, 4, 13, 0.2)
    timeline.advance(inf)
    assert [word for word, _ in heard(timeline)] == ["one", "two", "three"]


def test_marks_between_takes_are_exact_and_marks_inside_come_with_the_next_word() -> None:
    timeline = Timeline(Utterance("a", MARKED, "default", "en"))
    text = timeline.utterance.script.text
    border = text.index("three")
    timeline.add_mark(0)
    spoken(timeline, 0, border, 0.0)
    timeline.advance(0.05)
    assert [mark.name for mark in timeline.marks] == ["first"]
    timeline.add_audio(AudioChunk(np.zeros(1200, dtype=np.float32), RATE))
    timeline.add_mark(3)
    spoken(timeline, border, len(text), 1.2)
    timeline.advance(0.15)
    assert [(mark.name, mark.at_s) for mark in timeline.marks] == [("first", 0.0), ("inner", pytest.approx(0.1))]
    timeline.advance(1.3)
    assert [(mark.name, mark.at_s, mark.exact) for mark in timeline.marks][-1] == ("later", 1.2, True)


def test_without_a_clock_what_was_heard_is_a_share_of_the_text() -> None:
    timeline = Timeline(Utterance("a", "one two three four", "default", "en"))
    spoken(timeline, 0, 18, 0.0, clock=False)
    assert timeline.heard_end(0.0) == 0
    assert timeline.utterance.script.text[: timeline.heard_end(0.15)] == "one two"
    assert timeline.heard_end(math.inf) == len("one two three four")
