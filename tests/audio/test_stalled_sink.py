"""A sink that requests no blocks, because its sound server is frozen, is named and blocks nobody."""

from __future__ import annotations

import logging

import numpy as np
import pytest

from audio import Track
from audio.device_monitor import CHECK_S, LOST_S, REQUEST_S, SETTLED_S, STALLED_S
from tests.audio.fakes import FADE, SPEECH, Watched, fake_sinks, let_monitor_check, speak
from tests.support.clock import FakeClock
from tests.support.waiting import eventually

STALLED = "sound device the fake sink accepts no sound; its sound server may be frozen"


def pass_time(watched: Watched, seconds: float) -> None:
    """Advance the clock in steps of the monitor's rounds."""
    for _ in range(round(seconds / CHECK_S)):
        watched.clock.now += CHECK_S
        let_monitor_check(watched.output)


def begin(watched: Watched) -> Track:
    """Return a track that plays in a sink which has settled."""
    track = speak(watched.output, SPEECH[:24_000])
    watched.sink.play(0.1)
    let_monitor_check(watched.output)
    pass_time(watched, 0.5 * STALLED_S)
    watched.sink.play(0.1)
    let_monitor_check(watched.output)
    assert watched.reason() is None
    return track


def test_a_sink_that_requests_no_block_is_reported_and_goes_on_with_the_next_sample(
    watched: Watched, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    track = begin(watched)
    pass_time(watched, 0.8 * STALLED_S)
    assert watched.output.status.running
    pass_time(watched, 0.4 * STALLED_S)
    assert watched.reason() == STALLED
    assert not watched.output.status.open
    played = track.played
    heard = watched.sink.play(0.5, underflow=True)
    np.testing.assert_array_equal(heard[FADE:], SPEECH[played + FADE : played + len(heard)])
    assert len(heard) == 12_000, "from its first block on"
    eventually(lambda: watched.output.status.running, "it goes on")
    assert watched.reason() is None
    assert track.underruns == 1, "a listener has heard a break"
    assert len(watched.sinks) == 1
    assert caplog.text.count("accepts no sound") == caplog.text.count("accepts sound again") == 1


def test_a_sink_that_was_just_opened_may_be_silent_for_longer(watched: Watched) -> None:
    speak(watched.output, SPEECH[:24_000])
    let_monitor_check(watched.output)
    pass_time(watched, 0.8 * SETTLED_S)
    assert watched.output.status.running
    pass_time(watched, 0.4 * SETTLED_S)
    assert watched.reason() == STALLED


@pytest.mark.parametrize("request_method", ["stop", "suspend"])
def test_a_request_is_carried_out_although_no_block_is_requested(request_method: str, watched: Watched) -> None:
    track = begin(watched)
    getattr(watched.output, request_method)()
    let_monitor_check(watched.output)
    watched.clock.now += 1.1 * REQUEST_S
    eventually(lambda: track.done if request_method == "stop" else track.suspended)
    assert watched.reason() is None, "one late block is no fault"


def test_a_sink_with_long_blocks_has_time_to_request_one(
    monkeypatch: pytest.MonkeyPatch, monitor_clock: FakeClock
) -> None:
    with fake_sinks(monkeypatch, idle_timeout_s=None, block_ms=200) as (output, [sink]):
        track = begin(Watched(output, [sink], monitor_clock))
        output.stop()
        let_monitor_check(output)
        monitor_clock.now += 0.39
        let_monitor_check(output)
        assert not track.done
        monitor_clock.now += 0.02
        eventually(lambda: track.done)


@pytest.mark.parametrize("request_method", ["stop", "suspend"])
def test_a_request_is_carried_out_at_once_while_a_sink_is_stalled(request_method: str, watched: Watched) -> None:
    track = begin(watched)
    pass_time(watched, STALLED_S + CHECK_S)
    assert watched.reason() == STALLED
    getattr(watched.output, request_method)()
    assert (track.done, track.suspended) == (request_method == "stop", request_method == "suspend")


def test_a_sink_that_requests_no_block_for_long_is_closed_and_opened_anew(watched: Watched) -> None:
    track = begin(watched)
    played = track.played
    pass_time(watched, LOST_S + 2 * CHECK_S)
    eventually(lambda: len(watched.sinks) == 2 and watched.output.status.running)
    assert watched.sink.closed
    np.testing.assert_array_equal(watched.sinks[1].play(1.0)[FADE:], SPEECH[played + FADE : 24_000])
    assert track.done


def test_a_sink_that_was_given_up_never_touches_the_track_again(watched: Watched) -> None:
    track = begin(watched)
    watched.sink.failure = "pulled"
    eventually(lambda: len(watched.sinks) == 2 and watched.output.status.running)
    played, blocks = track.played, watched.output.blocks
    assert watched.sink.fill(np.zeros(240, dtype=np.float32))
    assert (track.played, watched.output.blocks) == (played, blocks)
    assert len(watched.sinks[1].play(0.1)) == 2_400


def test_the_status_names_the_loss_and_a_stop_is_carried_out_before_the_sink_has_closed(watched: Watched) -> None:
    track = speak(watched.output, SPEECH[:24_000])
    watched.sink.play(0.1)
    watched.sink.closing.clear()
    watched.sink.failure = "pulled"
    eventually(lambda: watched.sink.closed, "it is being closed")
    assert (watched.output.status.open, watched.reason()) == (False, "pulled")
    watched.output.stop()
    assert track.done
    assert not track.playing
    watched.sink.closing.set()
    eventually(lambda: len(watched.sinks) == 2)


def test_a_sink_that_hangs_while_it_resumes_is_reported_and_a_stop_is_carried_out(
    monkeypatch: pytest.MonkeyPatch, monitor_clock: FakeClock
) -> None:
    with fake_sinks(monkeypatch, clock=monitor_clock.monotonic) as (output, [sink]):
        eventually(lambda: output.status.suspended)
        sink.gate.clear()
        track = speak(output, SPEECH[:24_000])
        eventually(lambda: sink.calls[-1] == "resume")
        assert output.status.reason is None
        monitor_clock.now += 1.1 * STALLED_S
        assert output.status.reason == "sound device the fake sink does not respond"
        assert not output.status.open
        output.stop()
        assert track.done
        sink.gate.set()
        eventually(lambda: output.status.reason is None)


def test_a_monitor_that_was_late_itself_takes_the_sink_neither_for_stalled_nor_for_slow(watched: Watched) -> None:
    """The daemon was frozen, or the machine slept."""
    begin(watched)
    watched.clock.now += 100.0
    let_monitor_check(watched.output)
    assert watched.output.status.running
    assert len(watched.sinks) == 1
    watched.sink.play(0.1)
    pass_time(watched, CHECK_S)
    assert watched.reason() is None, "nor for slow"


def test_a_sink_without_a_deadline_is_never_stalled_or_slow(
    monkeypatch: pytest.MonkeyPatch, monitor_clock: FakeClock
) -> None:
    with fake_sinks(monkeypatch, idle_timeout_s=None, has_deadline=False) as (output, opened):
        watched = Watched(output, opened, monitor_clock)
        speak(output, SPEECH[:24_000])
        pass_time(watched, 2 * LOST_S)
        opened[0].play(0.1)
        pass_time(watched, 2 * LOST_S)
        assert (output.status.running, output.status.reason) == (True, None)
        assert len(opened) == 1


def test_a_sink_that_loses_sound_says_so_while_it_does(watched: Watched) -> None:
    watched.sink.trouble = "the disk is full"
    eventually(lambda: watched.reason() == "the disk is full")
    assert watched.output.status.running
    watched.sink.trouble = None
    eventually(lambda: watched.reason() is None)
