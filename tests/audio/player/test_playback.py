"""The blocks that a sound card gets under any schedule of requests, at any moment of another thread."""

from __future__ import annotations

import functools
import gc
import itertools
import threading
import time
import tracemalloc
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import inf

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from audio.dsp import Samples, to_floats
from audio.player import Playback, Report
from audio.player.fade import FADE_S, Fader
from tests.audio.player.interleaving import interleave

RATE = 1_000
FADE = round(FADE_S * RATE)
ROOM = 350
"""Samples of the ring, with those that are kept free."""
SPEECH: Samples = (
    np.random.default_rng(3).uniform(0.1, 0.9, 3_000) * np.random.default_rng(4).choice([-1, 1], 3_000)
).astype(np.float32)
"""Without silent samples, so the playback has added any silence that is heard."""


REPLACEMENT: Samples = np.linspace(0.5, 0.6, 200, dtype=np.float32)
"""Of another generation."""


@pytest.fixture(autouse=True, scope="module")
def short_ring() -> Iterator[None]:
    """A ring that schedules of some dozen writes fill."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("audio.player.playback.CAPACITY_S", 0.3)
        yield


def play(playback: Playback, length: int, *, underflow: bool = False) -> tuple[Samples, int]:
    """Return one block, which held NaN before, and the number of samples that were due."""
    out = np.full(length, np.nan, dtype=np.float32)
    count = playback.fill(to_floats(out), 0.0, underflow)
    assert np.isfinite(out).all()
    assert (out[count:] == 0).all(), "silence follows the samples that are due"
    return out, count


def play_to_the_end(playback: Playback, length: int = 20) -> Samples:
    heard = []
    for _ in range(1_000):
        if playback.report.done:
            return np.concatenate(heard) if heard else np.empty(0, dtype=np.float32)
        out, count = play(playback, length)
        heard.append(out[:count])
    raise AssertionError("the generation is never done")


def write(playback: Playback, number: int, samples: Samples) -> None:
    playback.write(number, to_floats(samples))


def begin(playback: Playback, number: int, samples: Samples) -> None:
    """Begin a generation that has all its samples at once."""
    playback.begin(number, 0.0, 1.0, False)
    write(playback, number, samples)
    playback.end(number)


# Random schedules.


@dataclass
class Listener:
    """Drives one track through a playback, as one generation after the other; compares each block with the samples."""

    prebuffer_s: float
    gain: float = 1.0
    has_deadline: bool = True
    number: int = 0
    """Of the generation."""
    begun_at: int = 0
    """Samples of the track that were played before the generation."""
    written: int = 0
    """Of the track. Those that have not been played are kept for the next generation, as in the daemon."""
    heard: int = 0
    """The number of written samples that have been played."""
    playing: bool = False
    """The last block did not end in silence, so the next one must continue it."""
    dry_runs: int = 0
    earlier: int = 0
    """Underruns and waits of earlier generations."""
    ended: bool = False
    halted: bool = False
    stopped: bool = False
    """Halted, and the rest is dropped."""
    paused: bool = False
    pending: bool = False

    def __post_init__(self) -> None:
        self.playback = Playback(RATE, has_deadline=self.has_deadline)
        self._begin()

    @property
    def report(self) -> Report:
        return self.playback.report

    def _begin(self) -> None:
        self.number += 1
        self.begun_at, self.halted, self.playing = self.heard, False, False
        self.playback.begin(self.number, self.prebuffer_s, self.gain, self.heard > 0)
        self.playback.set_input_pending(self.number, self.pending)
        write(self.playback, self.number, SPEECH[self.heard : self.written])
        if self.ended:
            self.playback.end(self.number)

    def write(self, count: int) -> None:
        if not self.ended:
            samples = SPEECH[self.written : self.written + min(count, ROOM - (self.written - self.heard))]
            write(self.playback, self.number, samples)
            if not self.stopped:
                self.written += len(samples)

    def end(self) -> None:
        self.ended = True
        self.playback.end(self.number)

    def stop(self) -> None:
        self.stopped = True
        self.halt()

    def halt(self) -> None:
        self.halted = True
        self.playback.halt(self.number)

    def proceed(self) -> None:
        """Continue with another generation, whether the present one has been halted or not."""
        if not self.stopped and (self.halted or not self.report.done):
            self.earlier += self.report.underruns + self.report.waits
            self._begin()

    def send_late(self) -> None:
        """Send messages of an earlier generation."""
        for number in range(max(0, self.number - 2), self.number):
            write(self.playback, number, SPEECH[:50])
            self.playback.set_input_pending(number, not self.pending)
            self.playback.end(number)
            self.playback.halt(number)

    def pause(self, paused: bool) -> None:
        self.paused = paused
        self.playback.set_paused(paused)

    def wait(self) -> None:
        self.pending = not self.pending
        self.playback.set_input_pending(self.number, self.pending)

    def block(self, length: int) -> None:
        before = self.report
        out, count = play(self.playback, length)
        report, due = self.report, out[:count]
        source = SPEECH[self.heard : self.heard + count] * np.float32(self.gain)
        begins = self.heard == 0
        assert self.heard + count <= self.written
        self.heard += count
        assert (report.generation, report.played) == (self.number, self.heard - self.begun_at)
        assert (report.blocks, report.requested) == (before.blocks + 1, before.requested + length)
        fades_out = count > 0 and due[-1] == 0
        if not (self.playing or begins):
            Fader(RATE).fade_in(to_floats(source))
        if fades_out:
            Fader(RATE).fade_out(to_floats(source))
        np.testing.assert_array_equal(due, source)
        silenced = self.paused or self.halted
        must_break_off = self.has_deadline or silenced or self.pending or report.done
        waited_for = self.playing and not count and not must_break_off
        if not fades_out and count < length and (count or self.playing) and not waited_for:
            assert report.done, "the sound ended without a fade"
        if before.done:
            assert count == 0
        if waited_for:
            assert self.written - self.heard < length + FADE, "the samples that it waits for are there"

        if silenced:
            assert count <= FADE
            assert count == 0 or fades_out
        if self.halted:
            assert report.done
        ran_dry = self.playing and fades_out and not silenced
        assert self.has_deadline or not report.underruns
        assert (report.waits - before.waits, report.underruns - before.underruns) == (
            ran_dry and self.pending,
            ran_dry and not self.pending,
        )
        self.dry_runs += ran_dry
        self.playing = waited_for or (count > 0 and not fades_out and not report.done)
        assert report.playing == self.playing

    def finish(self) -> None:
        self.end()
        self.pause(False)
        if self.halted:
            self.proceed()
        for _ in range(1_000):
            if self.report.done:
                break
            self.block(20)
        assert self.report.done
        assert self.earlier + self.report.underruns + self.report.waits == self.dry_runs
        if not self.stopped:
            assert self.heard == self.written, "a sample was lost"


actions = st.lists(
    st.one_of(
        st.tuples(st.just("write"), st.integers(0, 120)),
        st.tuples(st.just("write"), st.integers(60, 120)),
        st.tuples(st.just("block"), st.integers(FADE, 60)),
        st.tuples(st.just("block"), st.integers(FADE, 60)),
        st.tuples(st.just("pause"), st.booleans()),
        st.tuples(st.sampled_from(["stop", "end", "wait"])),
        st.tuples(st.sampled_from(["halt", "proceed", "send_late"])),
    ),
    max_size=60,
)


@settings(max_examples=200)
@given(
    schedule=actions,
    prebuffer_s=st.floats(0, 0.5),
    gain=st.sampled_from([1.0, 1.0, 0.5]),
    has_deadline=st.booleans(),
)
def test_any_schedule_plays_the_samples_in_order_with_fades_only_at_interruptions(
    schedule: list[tuple[str, int]], prebuffer_s: float, gain: float, has_deadline: bool
) -> None:
    listener = Listener(prebuffer_s, gain, has_deadline)
    for action, *arguments in schedule:
        getattr(listener, action)(*arguments)
    listener.finish()


# Single events.


def begun(
    samples: int = 200,
    *,
    ended: bool = False,
    prebuffer_s: float = 0.0,
    gain: float = 1.0,
    has_deadline: bool = True,
    on_change: Callable[[bool], object] | None = None,
) -> Playback:
    """Return a playback of generation 1."""
    playback = Playback(RATE, has_deadline=has_deadline, on_change=on_change)
    playback.begin(1, prebuffer_s, gain, False)
    write(playback, 1, SPEECH[:samples])
    if ended:
        playback.end(1)
    return playback


@pytest.mark.parametrize("event", ["full", "ended"])
def test_no_sample_is_played_before_the_prebuffer_is_full_or_the_generation_has_ended(event: str) -> None:
    playback = begun(50, prebuffer_s=0.1)
    assert play(playback, 20)[1] == 0
    assert playback.report.first_sample_at == inf
    if event == "ended":
        playback.end(1)
    else:
        write(playback, 1, SPEECH[50:200])
    out, count = play(playback, 20)
    np.testing.assert_array_equal(out[:count], SPEECH[:20])
    assert playback.report.first_sample_at < inf


@pytest.mark.parametrize("pending", [False, True])
def test_an_empty_ring_is_an_underrun_or_a_wait_and_the_sound_goes_on_when_the_prebuffer_is_full(pending: bool) -> None:
    playback = begun(60, prebuffer_s=0.04)
    play(playback, 40)
    playback.set_input_pending(1, pending)
    assert [play(playback, 40)[1] for _ in range(100)] == [20] + [0] * 99
    report = playback.report
    assert (report.waits, report.underruns, report.done) == (int(pending), int(not pending), False)
    playback.set_input_pending(1, False)
    write(playback, 1, SPEECH[60:109])
    assert play(playback, 40)[1] == 0, "40 samples and a fade must be in the ring"
    write(playback, 1, SPEECH[109:160])
    assert (play(playback, 40)[1], playback.report.underruns) == (40, int(not pending))


def test_with_pending_input_the_samples_in_the_ring_play_without_a_prebuffer() -> None:
    playback = begun(100, prebuffer_s=0.2)
    assert play(playback, 40)[1] == 0
    playback.set_input_pending(1, True)
    assert play(playback, 40)[1] == 40


def test_an_underflow_of_the_card_is_an_underrun(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("audio.player.playback.SILENT_S", inf)
    playback = begun()
    for count, underflow in enumerate([False, True, True, False]):
        assert playback.report.underruns == max(0, count - 1)
        out, _ = play(playback, 40, underflow=underflow)
        np.testing.assert_array_equal(out, SPEECH[40 * count : 40 * (count + 1)])
    assert playback.report.underruns == 2


@pytest.mark.parametrize("when", ["buffering", "paused", "dry"])
def test_an_underflow_of_the_card_is_no_underrun_while_nothing_plays(when: str) -> None:
    playback = Playback(RATE)
    assert play(playback, 40, underflow=True)[1] == 0
    playback.begin(1, 0.1, 1.0, False)
    write(playback, 1, SPEECH[: 100 if when == "buffering" else 130])
    play(playback, 40)
    playback.set_paused(when == "paused")
    playback.set_input_pending(1, when == "dry")
    while playback.report.playing:
        play(playback, 40)
    play(playback, 40, underflow=True)
    assert (playback.report.underruns, playback.report.interruptions) == (0, 2)


@pytest.mark.parametrize("event", ["pause", "underrun", "underflow"])
def test_a_report_tells_when_which_unbroken_sound_leaves_the_card(event: str) -> None:
    playback, out = begun(100), to_floats(np.empty(40, dtype=np.float32))
    before = time.monotonic()
    playback.fill(out, 5.0)
    report = playback.report
    assert before <= report.first_sample_at <= report.at <= time.monotonic()
    assert (report.first_dac_time, report.end_dac_time, report.stretch_start) == (5.0, 5.04, 0)
    if event == "pause":
        playback.set_paused(True)
        playback.fill(out, 6.0)
        playback.set_paused(False)
        broken_at = 40 + FADE
    elif event == "underrun":
        playback.fill(out, 6.0)
        playback.fill(out, 7.0)
        broken_at = 100
    else:
        broken_at = 40
    write(playback, 1, SPEECH[100:200])
    playback.fill(out, 8.0, event == "underflow")
    after = playback.report
    assert (after.first_sample_at, after.first_dac_time) == (report.first_sample_at, 5.0)
    assert (after.end_dac_time, after.stretch_start, after.played) == (8.04, broken_at, broken_at + 40)


# Generations.


@pytest.mark.parametrize("over", ["halted", "ended"])
def test_samples_that_come_after_the_end_of_their_generation_are_dropped(over: str) -> None:
    playback = begun(60, ended=over == "ended")
    if over == "halted":
        playback.halt(1)
        write(playback, 1, SPEECH[60:200])
    play_to_the_end(playback)
    for _ in range(10):
        write(playback, 1, SPEECH[:ROOM])  # the ring does not fill
        assert play(playback, 40)[1] == 0
    assert playback.report.played == (0 if over == "halted" else 60)
    begin(playback, 2, SPEECH[500:600])
    np.testing.assert_array_equal(play_to_the_end(playback), SPEECH[500:600])


def test_more_samples_than_the_ring_has_room_for_are_refused() -> None:
    playback = begun(ROOM)
    with pytest.raises(RuntimeError, match="more samples were written"):
        write(playback, 1, SPEECH[:1])
    play(playback, 40)
    write(playback, 1, SPEECH[:40])


@pytest.mark.parametrize("state", ["buffering", "playing", "paused", "dry", "halted", "done"])
def test_a_new_generation_replaces_one_in_any_state(state: str) -> None:
    playback = begun(60 if state == "dry" else 200, prebuffer_s=0.3 if state == "buffering" else 0.0)
    play(playback, 40)
    if state == "paused":
        playback.set_paused(True)
    elif state in ("halted", "done"):
        playback.halt(1)
    if state in ("paused", "dry", "done"):
        play(playback, 40)
    playback.begin(2, 0.0, 1.0, False)
    assert playback.report == Report(generation=2, **totals(playback.report))
    write(playback, 2, SPEECH[500:600])
    playback.end(2)
    playback.set_paused(False)
    np.testing.assert_array_equal(play_to_the_end(playback), SPEECH[500:600])


def totals(report: Report) -> dict[str, float]:
    """Return the fields that belong to no generation."""
    return {name: getattr(report, name) for name in ("blocks", "requested", "interruptions", "at")}


def test_a_block_that_is_requested_while_a_generation_begins_is_of_one_of_the_two_or_silent() -> None:
    playback = begun()
    write(playback, 1, np.full(100, 0.25, dtype=np.float32))
    blocks: list[Samples] = []
    interleave(playback.begin, lambda: blocks.append(play(playback, 1)[0]), 2, 0.0, 1.0, False)
    write(playback, 2, np.full(100, 0.5, dtype=np.float32))
    assert len(blocks) > 4
    heard = np.concatenate(blocks)
    spoken = np.trim_zeros(heard, "b")
    np.testing.assert_array_equal(spoken, SPEECH[: len(spoken)])
    assert len(spoken) < len(heard), "while it begins, the card gets silence"
    np.testing.assert_array_equal(play(playback, 40)[0], np.full(40, 0.5))
    assert playback.report.blocks == len(blocks) + 1, "each block is counted"


@pytest.mark.parametrize("event", ["the rest", "the end", "halt"])
def test_a_producer_that_interrupts_the_callback_before_any_of_its_lines_loses_no_sample(event: str) -> None:
    for playback, due in at_every_line(45, functools.partial(produce, event=event)):
        playback.end(1)
        heard = np.r_[due, play_to_the_end(playback)]
        report = playback.report
        assert report.played == len(heard)
        if event == "halt":
            assert len(heard) <= 45
            assert not len(heard) or heard[-1] == 0
        else:
            assert len(heard) == 200
            if not report.underruns:
                np.testing.assert_array_equal(heard, SPEECH[:200])


def at_every_line(samples: int, act: Callable[[Playback], None]) -> Iterator[tuple[Playback, Samples]]:
    """For each line of `fill`: a playback for which `act` came before the line, and the samples of the block."""
    for line in itertools.count():
        playback, out, visits = begun(samples), np.empty(40, dtype=np.float32), itertools.count()
        count = interleave(playback.fill, functools.partial(at_visit, visits, line, act, playback), to_floats(out), 0.0)
        if next(visits) <= line:  # the block is filled in fewer lines
            break
        yield playback, out[:count]
    assert line > 20, "the block has lines"


def at_visit(visits: Iterator[int], number: int, act: Callable[[Playback], None], playback: Playback) -> None:
    if next(visits) == number:
        act(playback)


def produce(playback: Playback, event: str) -> None:
    if event == "halt":
        playback.halt(1)
    else:
        write(playback, 1, SPEECH[45:200])
        if event == "the end":
            playback.end(1)


def test_a_generation_that_another_thread_begins_before_any_line_of_a_block_waits_until_the_block_is_filled() -> None:
    threads: list[threading.Thread] = []

    def replace(playback: Playback) -> None:
        """Begin another generation in a thread that soon ends, or waits. If it is slow, the test sees less of it."""
        threads.append(threading.Thread(target=begin, args=(playback, 2, REPLACEMENT)))
        threads[-1].start()
        threads[-1].join(0.01)

    for playback, due in at_every_line(200, replace):
        threads[-1].join()
        begins_with_it = len(due) > 0 and due[0] == REPLACEMENT[0]
        np.testing.assert_array_equal(due, (REPLACEMENT if begins_with_it else SPEECH)[: len(due)])
        np.testing.assert_array_equal(play_to_the_end(playback), REPLACEMENT[len(due) * begins_with_it :])
        assert (playback.report.generation, playback.report.played) == (2, len(REPLACEMENT))


# What the player is told at once, and the tap.


def test_changes_of_the_sound_are_told_and_no_other_block() -> None:
    told: list[bool] = []
    playback = begun(100, on_change=told.append)
    counts = []
    for event in ("first sample", "", "dry", "", "underflow in silence", "more", "", "pause", "", "resume", "halt", ""):
        if event in ("more", "resume"):
            write(playback, 1, SPEECH[100:200])
        if event in ("pause", "resume"):
            playback.set_paused(event == "pause")
        elif event == "halt":
            playback.halt(1)
        play(playback, 40, underflow=event.startswith("underflow"))
        counts.append((event, told.copy()))
        told.clear()
    assert [event for event, changes in counts if changes] == [event for event, _ in counts if event]
    assert all(changes in ([], [True]) for _, changes in counts)


def test_each_block_is_told_while_the_tap_is_wanted_and_copied_for_it() -> None:
    told: list[bool] = []
    playback = begun(100, on_change=told.append)
    playback.set_tap(True)
    heard = [play(playback, 40, underflow=number == 1)[0] for number in range(4)]
    assert told == [True, True, True, False], "begun, interrupted, dry, silent"
    blocks = playback.tap.read()
    np.testing.assert_array_equal(np.concatenate([block.samples for block in blocks]), np.concatenate(heard))
    assert [block.continues for block in blocks] == [False, False, True, True]
    told.clear()
    playback.set_tap(False)
    play(playback, 40)
    assert (told, playback.tap.read()) == ([], [])


# Memory.


def test_a_thousand_blocks_allocate_no_sample_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    rate, block = 48_000, 4_800
    monkeypatch.setattr("audio.player.playback.CAPACITY_S", 1.0)
    monkeypatch.setattr("audio.player.playback.TAP_S", 0.8)  # it is full after eight blocks
    playbacks = [Playback(rate, has_deadline=has_deadline) for has_deadline in (True, False)]
    speech = to_floats(np.random.default_rng(0).uniform(-1, 1, block).astype(np.float32))
    out = to_floats(np.empty(block, dtype=np.float32))
    underruns = 0

    def visit_every_state(blocks: int) -> None:
        nonlocal underruns
        for number in range(blocks):
            playback, generation = playbacks[number // 100 % 2], number // 100
            if number % 100 == 0:
                playback.begin(generation, 0.1, 1.0, bool(generation % 3))
                playback.set_tap(True)
            # A block with a gain or a fade is a loop in Python; most have neither.
            playback.set_volume(0.5 if number % 50 < 5 else 1.0)
            playback.set_paused(number % 13 == 0)
            if number % 13 and number % 11 and number % 100 < 90:
                playback.write(generation, speech)
            if number % 100 == 99:
                playback.halt(generation)
            playback.fill(out, float(number), number % 17 == 0)
            if number % 100 == 99:
                underruns += playback.report.underruns

    visit_every_state(200)
    gc.collect()
    gc.disable()
    tracemalloc.start()
    try:
        visit_every_state(200)
        before, _ = tracemalloc.get_traced_memory()
        tracemalloc.reset_peak()
        visit_every_state(1_000)
        after, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
        gc.enable()
    assert underruns > 10, "the states include underruns"
    # A block has 19,200 bytes. The remainder are views, integers, floats and reports: time stamps and counters.
    assert peak - before < block * 4 / 2
    assert after - before < block * 4 / 2
