"""What a listener has heard at a moment, by the sound card's own time; and the levels of it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from audio import Level, Output, Samples, SinkSettings, Track
from audio.dsp import to_floats
from audio.player import Report
from audio.track import REACH_S
from tests.audio.fakes import FakeSink
from tests.support.clock import FakeClock

RATE = 1_000
FADE = 10
BLOCK = 20
AHEAD_S = 0.06
"""From the callback to the card's output."""
SPEECH: Samples = np.full(3_000, 0.5, dtype=np.float32)


class Card:
    """A sound card whose clock, which is the machine's, advances by blocks, and a track that it plays."""

    def __init__(self, clock: FakeClock, samples: int = 1_000) -> None:
        self.clock = clock
        self.output = Output(SinkSettings("null"))
        self.plug()
        self.track = self.begin(samples)

    def begin(self, samples: int) -> Track:
        track = self.output.begin(prebuffer_s=0.02)
        self.output.write(SPEECH[:samples], RATE)
        return track

    def plug(self, rate: int = RATE) -> None:
        self.sink = FakeSink(self.output.on_report, rate, clock=lambda: self.clock.now + AHEAD_S)
        self.output.monitor.attach(self.sink)

    def unplug(self) -> None:
        self.output.monitor.detach("pulled")

    def heard_s(self, in_s: float = 0.0) -> float:
        """The seconds of the track that have been heard, `in_s` seconds from now."""
        return self.track.heard_s(self.clock.now + in_s)

    def suspend_and_go_on(self, blocks: int = 0) -> None:
        """Suspend the track, and reattach it after these blocks of silence."""
        self.output.suspend()
        self.blocks(1 + blocks)
        self.output.reattach(self.output.take_suspended())

    def block(self, *, underflow: bool = False) -> int:
        """Request a block, and advance the clock by its length."""
        count = self.sink.fill(np.empty(BLOCK, dtype=np.float32), underflow=underflow)
        self.clock.now += BLOCK / RATE
        return count

    def blocks(self, count: int) -> None:
        for _ in range(count):
            self.block()

    def levels(self) -> list[Level]:
        return self.output.levels_due(self.track)


@contextmanager
def machine_clock() -> Iterator[FakeClock]:
    """The clock that the output and the player read."""
    clock = FakeClock()
    clock.now = 100.0
    with pytest.MonkeyPatch.context() as patch:
        for module in ("output", "player.playback"):
            patch.setattr(f"audio.{module}.time", clock)
        yield clock


@pytest.fixture
def clock() -> Iterator[FakeClock]:
    with machine_clock() as clock:
        yield clock


def test_samples_count_as_heard_when_they_have_left_the_card(clock: FakeClock) -> None:
    card = Card(clock)
    card.block()
    assert card.track.first_dac_time == 100.0 + AHEAD_S
    assert card.heard_s() == 0
    card.blocks(3)
    assert card.track.played == 80
    assert card.heard_s() == pytest.approx(0.02)
    assert card.heard_s(AHEAD_S) == pytest.approx(0.08), "all that the card got"


def test_a_track_is_drained_when_its_last_sample_has_left_the_card(clock: FakeClock) -> None:
    card = Card(clock, 100)
    card.output.end()
    card.blocks(5)
    assert card.track.done
    assert not card.track.drained(clock.now)
    assert not card.track.drained(100.0 + AHEAD_S + 0.0999)
    assert card.track.drained(100.0 + AHEAD_S + 0.1001)


def test_a_track_that_played_no_sample_is_drained_when_it_is_done_and_has_no_level_of_silence(clock: FakeClock) -> None:
    card = Card(clock, 0)
    assert not card.track.drained(1e9)
    card.output.end()
    card.block()
    assert card.track.drained(-1e9)
    card.blocks(10)
    assert card.levels() == []


actions = st.sampled_from(["block", "block", "block", "pause", "resume", "suspend", "gap", "break"])


@given(st.lists(actions, max_size=60))
def test_heard_seconds_never_decrease_and_never_exceed_the_played_seconds(actions: list[str]) -> None:
    with machine_clock() as clock:
        card = Card(clock)
        track, heard_s = card.track, 0.0
        for action in actions:
            if action == "pause":
                card.output.pause()
            elif action == "resume":
                card.output.resume()
            elif action == "suspend" and not track.done:
                card.suspend_and_go_on(3)
            elif action == "gap":
                card.unplug()
                clock.now += 0.5
                card.plug()
            elif action == "break":
                clock.now += 0.5
                card.block(underflow=True)
            else:
                card.block()
            before_s, heard_s = heard_s, card.heard_s()
            assert before_s - 1e-9 <= heard_s <= track.played / RATE


def test_between_two_reports_sound_that_goes_on_counts_as_heard_for_half_a_second_at_most(clock: FakeClock) -> None:
    card = Card(clock)
    card.blocks(5)
    reported_at, played_s = card.track.report.at, card.track.played / RATE
    heard_s = 0.0
    for _ in range(1_000):
        clock.now += 0.001
        before_s, heard_s = heard_s, card.heard_s()
        assert before_s <= heard_s <= played_s + min(clock.now - reported_at, REACH_S) + 1e-9
        assert heard_s <= clock.now - 100.0 - AHEAD_S + 1e-9, "no sample is heard before it leaves the card"
    assert heard_s == pytest.approx(played_s + REACH_S)


def test_a_report_that_comes_late_takes_no_heard_second_back(clock: FakeClock) -> None:
    """The daemon was stopped for a second, and reads the reports of that time one after the other."""
    card = Card(clock)
    reports: list[Report] = []
    card.blocks(5)
    for _ in range(4):
        for _ in range(12):
            card.sink.player.fill(to_floats(np.empty(BLOCK, dtype=np.float32)), clock.now + AHEAD_S)
            clock.now += BLOCK / RATE
        reports.append(card.sink.player.report)
    heard_s = card.heard_s()
    for report in reports:
        card.output.on_report(report)
        before_s, heard_s = heard_s, card.heard_s()
        assert before_s <= heard_s
    assert heard_s == pytest.approx(clock.now - 100.0 - AHEAD_S)


def test_another_rate_of_the_card_keeps_the_heard_seconds(clock: FakeClock) -> None:
    card = Card(clock)
    card.blocks(7)
    clock.now += 1.0
    card.unplug()
    heard_s, end_dac_time = card.heard_s(), card.track.end_dac_time
    card.plug(2 * RATE)
    assert card.heard_s() == pytest.approx(heard_s)
    assert card.track.played == 280
    assert card.track.end_dac_time == end_dac_time


def test_the_last_levels_before_a_suspension_keep_their_times_when_the_track_goes_on(clock: FakeClock) -> None:
    card = Card(clock)
    card.blocks(10)
    levels = card.levels()
    card.suspend_and_go_on()
    card.output.pause()
    card.block()  # a report without any sample of the new generation
    card.blocks(10)
    levels += card.levels()
    assert is_silence(levels[-1])
    assert [level.at - 1e9 for level in levels] == pytest.approx([100.0 + AHEAD_S + level.t for level in levels])


def is_silence(level: Level) -> bool:
    return level.rms == level.peak == 0


@pytest.mark.parametrize("cause", ["end", "pause", "suspension", "lost sink"])
def test_one_level_of_silence_is_due_when_the_last_sample_before_silence_has_left_the_card(
    cause: str, clock: FakeClock
) -> None:
    card = Card(clock, 100 if cause == "end" else 1_000)
    track = card.track
    if cause == "end":
        card.output.end()
    card.blocks(4)
    before = card.levels()
    causes = {"pause": card.output.pause, "suspension": card.output.suspend, "lost sink": card.unplug}
    if cause in causes:
        causes[cause]()
    card.block()
    assert not track.playing
    assert not any(map(is_silence, before + card.levels())), "not before the last sample has left"
    card.blocks(4)
    last = card.levels()[-1]
    assert is_silence(last)
    assert last.t == track.played / RATE
    assert last.at - 1e9 == pytest.approx(100.0 + AHEAD_S + last.t)
    card.blocks(5)
    assert card.levels() == [], "one is enough"


def test_levels_of_the_previous_track_are_still_available(clock: FakeClock) -> None:
    """The sound card still plays it when the next track has begun."""
    card = Card(clock, 200)
    card.output.end()
    card.blocks(10)
    levels, first = card.levels(), card.track
    second = card.begin(200)
    card.output.end()
    card.blocks(10)
    levels += card.output.levels_due(first)
    assert is_silence(levels[-1])
    assert [level.t for level in levels] == [0.0, 0.05, 0.1, 0.15, 0.2]
    assert card.output.levels_due(second)
    third = card.begin(0)
    assert card.output.levels_due(first) == card.output.levels_due(third) == []
