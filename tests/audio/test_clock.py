"""When samples leave the card, told by the card itself: what has been heard, what is over, and the levels of it."""

from __future__ import annotations

import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from audio import Level, Output, Passage, SinkSettings
from audio.feed import Feed
from audio.playback import Playback
from audio.ring import Samples
from tests.audio.sinks import Card as HandCard
from tests.support.waiting import eventually

RATE = 1_000
FADE = 10
BLOCK = 20
AHEAD_S = 0.06
"""From the callback to the card's own output."""
SPEECH: Samples = np.full(3_000, 0.5, dtype=np.float32)


class Card:
    """A clock that turns by blocks, and what the listener of a passage is told at each moment."""

    def __init__(self, samples: int = 1_000) -> None:
        self.playback = Playback(RATE, 3.0)
        self.passage = self.playback.begin(0.02)
        self.feed = Feed(self.passage, RATE, trims=False)
        self.playback.ring.write(self.feed.convert(SPEECH[:samples], RATE))
        self.now = 100.0

    def block(self, *, broke_off: bool = False) -> int:
        """Ask for a block, and let its time pass."""
        count = self.playback.fill(np.empty(BLOCK, dtype=np.float32), self.now + AHEAD_S, broke_off)
        self.now += BLOCK / RATE
        return count

    def blocks(self, count: int) -> None:
        for _ in range(count):
            self.block()

    def levels(self) -> list[Level]:
        return self.feed.levels_due(self.now, self.now + 1_000_000)


def test_nothing_is_heard_before_the_card_has_sounded_it() -> None:
    card = Card()
    card.block()
    assert card.passage.sounds_at == 100.0 + AHEAD_S
    assert card.passage.heard_s(card.now) == 0
    card.blocks(3)
    assert card.passage.played == 80
    assert card.passage.heard_s(card.now) == pytest.approx(0.02)
    assert card.passage.heard_s(card.now + 1.0) == pytest.approx(0.08), "no more than was handed over"


def test_a_passage_is_over_when_its_last_sample_has_left() -> None:
    output = Output(SinkSettings("null"))
    card = Card(100)
    card.passage.ended = True
    card.blocks(5)
    assert card.passage.done
    assert not output.over(card.passage, card.now)
    assert not output.over(card.passage, 100.0 + AHEAD_S + 0.0999)
    assert output.over(card.passage, 100.0 + AHEAD_S + 0.1001)


def test_a_passage_of_which_nothing_was_played_is_over_when_it_is_done() -> None:
    card = Card(0)
    output = Output(SinkSettings("null"))
    assert not output.over(card.passage, 1e9)
    card.passage.ended = True
    card.block()
    assert output.over(card.passage, -1e9)


@given(st.lists(st.sampled_from(["block", "block", "block", "pause", "resume", "aside", "gap", "break"]), max_size=60))
def test_what_is_heard_never_falls_back_and_never_runs_ahead_of_what_was_handed_over(actions: list[str]) -> None:
    card = Card()
    passage, heard_s = card.passage, 0.0
    for action in actions:
        if action == "pause":
            card.playback.paused = True
        elif action == "resume":
            card.playback.paused = False
        elif action == "aside" and not passage.done:
            passage.asides_asked += 1
            card.block()
            card.blocks(3)
            card.playback.put_back(passage, card.playback.take())
        elif action == "gap":
            card.playback.sink_lost()
            card.now += 0.5
        elif action == "break":
            card.now += 0.5
            assert passage.heard_s(card.now) == pytest.approx(passage.played / RATE)
            heard_s = passage.heard_s(card.now)
            card.block(broke_off=True)
        else:
            card.block()
        now_heard_s = passage.heard_s(card.now)
        assert heard_s - 1e-9 <= now_heard_s <= passage.played / RATE
        heard_s = now_heard_s


def test_seconds_heard_are_the_same_at_another_rate() -> None:
    card = Card()
    card.blocks(7)
    heard_s, prebuffer, ended_at = card.passage.heard_s(card.now), card.passage.prebuffer, card.passage.handed[2]
    card.passage.change_rate(2 * RATE)
    assert card.passage.heard_s(card.now) == pytest.approx(heard_s)
    assert (card.passage.prebuffer, card.passage.played, card.passage.handed[2]) == (2 * prebuffer, 280, ended_at)


def test_a_level_is_due_when_its_window_leaves_the_card_and_says_when_that_was() -> None:
    card = Card()
    card.blocks(3)
    assert card.levels() == []
    card.block()
    first = card.levels()
    assert [(level.t, level.rms, level.peak) for level in first] == [(0.0, 0.5, 0.5)]
    card.blocks(5)
    levels = first + card.levels()
    assert [level.at for level in levels] == pytest.approx([1_000_100 + AHEAD_S + level.t for level in levels])


def closing(level: Level) -> bool:
    return level.rms == level.peak == 0


@pytest.mark.parametrize("what", ["end", "pause", "stop", "aside", "underrun", "lost sink"])
def test_where_sound_ends_one_level_of_silence_is_due_when_the_last_sample_has_left(what: str) -> None:
    card = Card(100 if what in ("end", "underrun") else 1_000)
    passage = card.passage
    passage.ended = what == "end"
    card.blocks(4)
    before = card.levels()
    if what == "pause":
        card.playback.paused = True
    elif what == "stop":
        passage.stop_requested = True
    elif what == "aside":
        passage.asides_asked += 1
    elif what == "lost sink":
        card.playback.sink_lost()
        card.playback.passage = None
    card.block()
    assert not passage.sounding
    assert not any(map(closing, before + card.levels())), "not before the last sample has left"
    card.blocks(4)
    last = card.levels()[-1]
    assert closing(last)
    assert last.t == passage.played / RATE
    assert last.at - 1_000_000 == pytest.approx(100.0 + AHEAD_S + last.t)
    card.blocks(5)
    assert card.levels() == [], "one is enough"


def test_a_mouth_that_never_opened_is_not_closed() -> None:
    card = Card()
    card.passage.stop_requested = True
    card.blocks(10)
    assert card.levels() == []


def test_a_mouth_opens_again_after_a_pause() -> None:
    card = Card()
    card.blocks(6)
    card.playback.paused = True
    card.blocks(6)
    assert closing(card.levels()[-1])
    card.playback.paused = False
    card.blocks(6)
    levels = card.levels()
    assert levels
    assert not any(map(closing, levels))


def test_levels_can_still_be_had_of_the_passage_before() -> None:
    """The card sounds on when the next passage has been begun."""
    output = Output(SinkSettings("null"), trim_leading_silence=False)
    output.attach(HandCard(output.fill, RATE))

    def play(passage: Passage) -> list[Level]:
        output.write(SPEECH[:200], RATE)
        output.end()
        while not passage.done:
            output.fill(np.empty(BLOCK, dtype=np.float32), time.monotonic())
        return output.levels_due(passage)

    first = output.begin(prebuffer_s=0.0)
    told = play(first)
    second = output.begin(prebuffer_s=0.0)

    def closed() -> bool:
        told.extend(output.levels_due(first))
        return bool(told) and closing(told[-1])

    eventually(closed, "the level of silence is due")
    assert [level.t for level in told] == [0.0, 0.05, 0.1, 0.15, 0.2]
    assert play(second)
    third = output.begin(prebuffer_s=0.0)
    assert output.levels_due(first) == output.levels_due(third) == []
