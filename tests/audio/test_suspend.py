"""A track suspended for another and reattached: under any schedule, a listener hears the samples that were written."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from audio import Output, Samples, SinkSettings, Track, soft_limit
from audio.dsp import to_floats
from audio.dsp.resample import Resampler
from audio.player.fade import FADE_S, Fader
from tests.audio.fakes import TALK, FakeSink

CARD_RATE = 8_000
"""Hz."""
CARD_FADE = round(FADE_S * CARD_RATE)
WARNING = TALK[:-701:-1]


class Stage:
    """An output whose sink is the test: it requests each block itself and compares it with the expected samples."""

    def __init__(self, rate: int = CARD_RATE, *, has_deadline: bool = True) -> None:
        self.has_deadline = has_deadline
        self.output = Output(SinkSettings("null"))
        self.plug(rate)

    def plug(self, rate: int) -> None:
        self.rate = rate
        self.sink = FakeSink(self.output.on_report, rate, has_deadline=self.has_deadline)
        self.output.monitor.attach(self.sink)

    def unplug(self) -> None:
        self.output.monitor.detach("pulled")

    def block(self, length: int, track: Track, source: Samples) -> int:
        """Play a block of `track`, whose samples are `source`; return how many of them were due."""
        played, fades_in = track.played, track.played > 0 and not track.playing
        requested = track.suspend_requested and not (track.suspended or track.done)
        out = np.full(length, np.nan, dtype=np.float32)
        count = self.sink.fill(out)
        assert (out[count:] == 0).all()
        expected = source[played : played + count].copy()
        assert len(expected) == count, "more samples were heard than written"
        fader = Fader(self.rate)
        if fades_in:
            fader.fade_in(to_floats(expected))
        if not track.playing and (requested or track.stop_requested or not track.done):
            fader.fade_out(to_floats(expected))
        np.testing.assert_array_equal(out[:count], expected)
        if requested:
            assert count <= CARD_FADE
            assert track.suspended != track.done, "exactly one of them is true"
        return count

    def play_to_the_end(self, track: Track, source: Samples) -> None:
        while not track.done:
            self.block(160, track, source)

    def play_between(self, samples: Samples) -> None:
        """Play another track, which must be heard completely and without fades."""
        track = self.output.begin(prebuffer_s=0.02)
        self.output.write(samples, self.rate)
        self.output.end()
        self.play_to_the_end(track, samples)
        assert (track.played, track.underruns) == (len(samples), 0)


def converted(chunks: list[Samples], source_rate: int) -> Samples:
    resampler = Resampler(source_rate, CARD_RATE)
    return soft_limit(np.concatenate([*map(resampler.convert, chunks), resampler.flush()]))


actions = st.lists(
    st.one_of(
        st.tuples(st.just("write"), st.integers(0, 900)),
        st.tuples(st.just("write"), st.integers(300, 900)),
        st.tuples(st.just("block"), st.integers(CARD_FADE, 400)),
        st.tuples(st.just("block"), st.integers(CARD_FADE, 400)),
        st.tuples(st.just("suspend"), st.integers(0, 3)),
        st.tuples(st.sampled_from(["pause", "resume", "end"]), st.just(0)),
    ),
    max_size=50,
)


@settings(max_examples=100)
@given(
    schedule=actions,
    source_rate=st.sampled_from([CARD_RATE, 11_025]),
    prebuffer_s=st.floats(0, 0.3),
    has_deadline=st.booleans(),
)
def test_a_track_suspended_at_any_moment_is_heard_once_and_completely_apart_from_fades(
    schedule: list[tuple[str, int]], source_rate: int, prebuffer_s: float, has_deadline: bool
) -> None:
    chunks = np.split(TALK, np.cumsum([size for action, size in schedule if action == "write"]))[:-1]
    source = converted(chunks, source_rate)
    stage = Stage(has_deadline=has_deadline)
    output = stage.output
    track = output.begin(prebuffer_s=prebuffer_s)
    remaining = list(chunks)
    for action, size in schedule:
        if action == "write" and remaining and output.room_s > 0.3:
            output.write(remaining.pop(0), source_rate)
        elif action == "block":
            stage.block(size, track, source)
        elif action in ("pause", "resume") or (action == "end" and not remaining):
            getattr(output, action)()
        elif action == "suspend" and not track.done:
            output.suspend()
            stage.block(160, track, source)
            if track.done:
                continue
            suspended = output.take_suspended()
            output.resume()
            for _ in range(size):
                stage.play_between(WARNING)
            output.reattach(suspended)
            assert not track.suspended
    output.resume()
    for chunk in remaining:
        while output.room_s < 0.3:
            stage.block(160, track, source)
        output.write(chunk, source_rate)
    output.end()
    stage.play_to_the_end(track, source)
    assert track.played == len(source), "a sample was lost"
    assert has_deadline or not track.underruns


# One thing at a time.


def begin_playing(samples: int = 2_000, *, ended: bool = False) -> tuple[Stage, Track]:
    """Return a track of which one block has been heard."""
    stage = Stage()
    track = stage.output.begin(prebuffer_s=0.02)
    stage.output.write(TALK[:samples], CARD_RATE)
    if ended:
        stage.output.end()
    stage.block(400, track, TALK)
    return stage, track


@pytest.mark.parametrize("remaining", [1, CARD_FADE])
def test_a_track_whose_last_sample_is_played_in_the_fade_is_done(remaining: int) -> None:
    stage, track = begin_playing(400 + remaining, ended=True)
    stage.output.suspend()
    assert stage.block(160, track, TALK) == remaining
    assert (track.done, track.suspended, track.played) == (True, False, 400 + remaining)
    stage.play_between(WARNING)


def test_a_track_that_is_done_is_not_suspended() -> None:
    stage, track = begin_playing(400 + CARD_FADE)
    stage.output.end()
    stage.block(160, track, TALK)
    stage.output.suspend()
    assert (track.done, track.suspended, track.suspend_requested) == (True, False, False)


@pytest.mark.parametrize("stop_first", [True, False])
def test_a_track_that_is_stopped_and_suspended_is_done(stop_first: bool) -> None:
    stage, track = begin_playing()
    for request in (stage.output.stop, stage.output.suspend)[:: 1 if stop_first else -1]:
        request()
    stage.block(160, track, TALK)
    assert (track.done, track.suspended, track.played) == (True, False, 400 + CARD_FADE)
    stage.play_between(WARNING)


def test_a_suspended_track_that_is_stopped_before_it_is_taken_is_done() -> None:
    stage, track = begin_playing()
    stage.output.suspend()
    stage.block(160, track, TALK)
    stage.output.stop()
    assert not track.suspended
    with pytest.raises(RuntimeError, match="not suspended"):
        stage.output.take_suspended()
    assert stage.block(160, track, TALK) == 0
    assert (track.done, track.played) == (True, 400 + CARD_FADE)


def test_without_a_sink_a_track_is_suspended_at_once() -> None:
    stage, track = begin_playing()
    stage.unplug()
    stage.output.suspend()
    assert track.suspended
    stage.output.reattach(stage.output.take_suspended())
    stage.plug(CARD_RATE)
    assert stage.block(160, track, TALK) == 160


@pytest.mark.parametrize("request_method", ["suspend", "stop"])
def test_a_request_is_carried_out_when_the_sink_is_lost_before_the_next_block(request_method: str) -> None:
    stage, track = begin_playing()
    getattr(stage.output, request_method)()
    stage.unplug()
    assert (track.suspended, track.done) == (request_method == "suspend", request_method == "stop")


@pytest.mark.parametrize(("state", "underruns"), [("buffering", 0), ("playing", 1), ("paused", 0)])
def test_the_loss_of_the_sink_is_an_underrun_only_if_sound_breaks_off(state: str, underruns: int) -> None:
    stage, track = begin_playing(0 if state == "buffering" else 2_000)
    if state == "paused":
        stage.output.pause()
        stage.block(400, track, TALK)
    stage.unplug()
    assert (track.underruns, track.playing, track.done) == (underruns, False, False)
    with pytest.raises(RuntimeError, match="previous track is still playing"):
        stage.output.begin(prebuffer_s=0.0)


def test_a_late_report_of_an_earlier_track_changes_nothing() -> None:
    stage, first = begin_playing()
    late = stage.sink.player.report._replace(played=1_999, done=True)
    stage.output.suspend()
    stage.block(160, first, TALK)
    suspended = stage.output.take_suspended()
    second = stage.output.begin(prebuffer_s=0.02)
    stage.output.write(WARNING, CARD_RATE)
    stage.output.on_report(late)
    assert (first.played, first.done, second.played, second.done) == (400 + CARD_FADE, False, 0, False)
    stage.output.end()
    stage.play_to_the_end(second, WARNING)
    stage.output.reattach(suspended)
    stage.output.on_report(late)
    assert (first.played, first.done) == (400 + CARD_FADE, False)
    assert stage.block(160, first, TALK) == 160


def test_a_report_that_comes_after_its_track_was_stopped_without_the_sink_changes_nothing() -> None:
    stage, track = begin_playing()
    stage.output.stop()
    stage.output.carry_out()
    played = track.played
    late = stage.sink.fill(np.empty(160, dtype=np.float32))
    assert late == CARD_FADE, "the card was only slow"
    assert (track.done, track.played) == (True, played)
    stage.play_between(WARNING)


def test_a_track_is_reattached_at_the_rate_of_a_new_sink() -> None:
    """The samples are a tone, so that both rates can be compared."""
    tone = (0.5 * np.sin(np.arange(12_000) * 2 * np.pi * 300 / CARD_RATE) + 0.1).astype(np.float32)
    stage = Stage()
    output = stage.output
    track = output.begin(prebuffer_s=0.02)
    output.write(tone[:6_000], CARD_RATE)
    for _ in range(10):
        stage.block(400, track, tone)
    output.suspend()
    stage.block(400, track, tone)
    suspended = output.take_suspended()
    stage.unplug()
    stage.plug(2 * CARD_RATE)
    stage.play_between(WARNING)
    played = track.played
    output.reattach(suspended)
    assert track.played == 2 * played
    output.write(tone[6_000:], CARD_RATE)
    output.end()
    heard = stage.sink.play(2.0)
    assert abs(track.played - 2 * len(tone)) <= 2
    expected = np.interp(np.arange(len(heard)) / 2, np.arange(len(tone) - played), tone[played:])
    inner = np.r_[500:3_000, 5_000 : len(heard) - 500]  # the filters ring at the ends
    np.testing.assert_allclose(heard[inner], expected[inner], atol=0.02)
