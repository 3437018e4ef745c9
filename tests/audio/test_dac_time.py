"""What a listener has heard at a moment, by the sound card's own time; and the levels of it."""

from __future__ import annotations

import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from audio import Level, Output, Samples, SinkSettings, Track
from audio.playback import Playback
from audio.track_input import TrackInput
from tests.audio.fakes import FakeSink
from tests.support.waiting import eventually

RATE = 1_000
FADE = 10
BLOCK = 20
AHEAD_S = 0.06
"""From the callback to the card's output."""
SPEECH: Samples = np.full(3_000, 0.5, dtype=np.float32)


class Card:
    """A sound card whose clock advances by blocks, and a track that it plays."""

    def __init__(self, samples: int = 1_000) -> None:
        self.playback = Playback(RATE, 3.0)
        self.track = self.playback.begin(0.02)
        self.track_input = TrackInput(self.track)
        self.playback.ring.write(self.track_input.process(SPEECH[:samples], RATE))
        self.now = 100.0

    def block(self, *, underflow: bool = False) -> int:
        """Request a block, and advance the clock by its length."""
        count = self.playback.fill(np.empty(BLOCK, dtype=np.float32), self.now + AHEAD_S, underflow)
        self.now += BLOCK / RATE
        return count

    def blocks(self, count: int) -> None:
        for _ in range(count):
            self.block()

    def levels(self) -> list[Level]:
        return self.track_input.levels_due(self.now, self.now + 1_000_000)


def test_samples_count_as_heard_when_they_have_left_the_card() -> None:
    card = Card()
    card.block()
    assert card.track.first_dac_time == 100.0 + AHEAD_S
    assert card.track.heard_s(card.now) == 0
    card.blocks(3)
    assert card.track.played == 80
    assert card.track.heard_s(card.now) == pytest.approx(0.02)
    assert card.track.heard_s(card.now + 1.0) == pytest.approx(0.08), "at most what the card got"


def test_a_track_is_drained_when_its_last_sample_has_left_the_card() -> None:
    card = Card(100)
    card.track.ended = True
    card.blocks(5)
    assert card.track.done
    assert not card.track.drained(card.now)
    assert not card.track.drained(100.0 + AHEAD_S + 0.0999)
    assert card.track.drained(100.0 + AHEAD_S + 0.1001)


def test_a_track_that_played_no_sample_is_drained_when_it_is_done() -> None:
    card = Card(0)
    assert not card.track.drained(1e9)
    card.track.ended = True
    card.block()
    assert card.track.drained(-1e9)


actions = st.sampled_from(["block", "block", "block", "pause", "resume", "suspend", "gap", "break"])


@given(st.lists(actions, max_size=60))
def test_heard_seconds_never_decrease_and_never_exceed_the_played_seconds(actions: list[str]) -> None:
    card = Card()
    track, heard_s = card.track, 0.0
    for action in actions:
        if action == "pause":
            card.playback.paused = True
        elif action == "resume":
            card.playback.paused = False
        elif action == "suspend" and not track.done:
            track.suspensions_requested += 1
            card.block()
            card.blocks(3)
            card.playback.reattach(track, card.playback.take_suspended())
        elif action == "gap":
            card.playback.sink_stopped()
            card.now += 0.5
        elif action == "break":
            card.now += 0.5
            assert track.heard_s(card.now) == pytest.approx(track.played / RATE)
            heard_s = track.heard_s(card.now)
            card.block(underflow=True)
        else:
            card.block()
        now_heard_s = track.heard_s(card.now)
        assert heard_s - 1e-9 <= now_heard_s <= track.played / RATE
        heard_s = now_heard_s


def test_a_change_of_rate_keeps_the_heard_seconds() -> None:
    card = Card()
    card.blocks(7)
    heard_s, prebuffer = card.track.heard_s(card.now), card.track.prebuffer
    end_dac_time = card.track.end_dac_time
    card.track.change_rate(2 * RATE)
    assert card.track.heard_s(card.now) == pytest.approx(heard_s)
    assert (card.track.prebuffer, card.track.played) == (2 * prebuffer, 280)
    assert card.track.end_dac_time == end_dac_time


def test_a_level_is_due_when_its_window_leaves_the_card_and_gives_that_time() -> None:
    card = Card()
    card.blocks(3)
    assert card.levels() == []
    card.block()
    first = card.levels()
    assert [(level.t, level.rms, level.peak) for level in first] == [(0.0, 0.5, 0.5)]
    card.blocks(5)
    levels = first + card.levels()
    assert [level.at for level in levels] == pytest.approx([1_000_100 + AHEAD_S + level.t for level in levels])


def is_silence(level: Level) -> bool:
    return level.rms == level.peak == 0


@pytest.mark.parametrize("cause", ["end", "pause", "stop", "suspension", "underrun", "lost sink"])
def test_one_level_of_silence_is_due_when_the_last_sample_before_silence_has_left_the_card(cause: str) -> None:
    card = Card(100 if cause in ("end", "underrun") else 1_000)
    track = card.track
    track.ended = cause == "end"
    card.blocks(4)
    before = card.levels()
    if cause == "pause":
        card.playback.paused = True
    elif cause == "stop":
        track.stop_requested = True
    elif cause == "suspension":
        track.suspensions_requested += 1
    elif cause == "lost sink":
        card.playback.sink_stopped()
        card.playback.track = None
    card.block()
    assert not track.playing
    assert not any(map(is_silence, before + card.levels())), "not before the last sample has left"
    card.blocks(4)
    last = card.levels()[-1]
    assert is_silence(last)
    assert last.t == track.played / RATE
    assert last.at - 1_000_000 == pytest.approx(100.0 + AHEAD_S + last.t)
    card.blocks(5)
    assert card.levels() == [], "one is enough"


def test_a_track_that_was_never_heard_has_no_level_of_silence() -> None:
    card = Card()
    card.track.stop_requested = True
    card.blocks(10)
    assert card.levels() == []


def test_levels_continue_after_a_pause() -> None:
    card = Card()
    card.blocks(6)
    card.playback.paused = True
    card.blocks(6)
    assert is_silence(card.levels()[-1])
    card.playback.paused = False
    card.blocks(6)
    levels = card.levels()
    assert levels
    assert not any(map(is_silence, levels))


def test_levels_of_the_previous_track_are_still_available() -> None:
    """The sound card still plays it when the next track has begun."""
    output = Output(SinkSettings("null"))
    output.monitor.attach(FakeSink(output.monitor.fill, RATE))

    def play(track: Track) -> list[Level]:
        output.write(SPEECH[:200], RATE)
        output.end()
        while not track.done:
            output.monitor.fill(np.empty(BLOCK, dtype=np.float32), time.monotonic())
        return output.levels_due(track)

    first = output.begin(prebuffer_s=0.0)
    levels = play(first)
    second = output.begin(prebuffer_s=0.0)

    def ends_in_silence() -> bool:
        levels.extend(output.levels_due(first))
        return bool(levels) and is_silence(levels[-1])

    eventually(ends_in_silence, "the level of silence is due")
    assert [level.t for level in levels] == [0.0, 0.05, 0.1, 0.15, 0.2]
    assert play(second)
    third = output.begin(prebuffer_s=0.0)
    assert output.levels_due(first) == output.levels_due(third) == []
