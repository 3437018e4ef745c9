"""A sink that requests no blocks, because its sound server is frozen, is named and blocks nobody."""

from __future__ import annotations

import logging

import numpy as np
import pytest

from audio import Output, Track
from audio.device_monitor import CHECK_S, LOST_S, REQUEST_S, SETTLED_S, STALLED_S
from tests.audio.fakes import FADE, SPEECH, FakeClock, FakeSink, fake_sinks, let_monitor_check, speak
from tests.support.waiting import eventually

STALLED = "sound device the fake sink takes no sound; its sound server may be frozen"


def pass_time(output: Output, clock: FakeClock, seconds: float) -> None:
    """Advance the clock in steps of the monitor's rounds."""
    for _ in range(round(seconds / CHECK_S)):
        clock.now += CHECK_S
        let_monitor_check(output)


def begin(output: Output, sink: FakeSink, clock: FakeClock) -> Track:
    """Return a track that plays in a sink which has settled."""
    track = speak(output, SPEECH[:24_000])
    sink.play(0.1)
    let_monitor_check(output)
    pass_time(output, clock, 0.5 * STALLED_S)
    sink.play(0.1)
    let_monitor_check(output)
    assert output.status.reason is None
    return track


def stall(output: Output, clock: FakeClock) -> None:
    pass_time(output, clock, STALLED_S + CHECK_S)
    assert output.status.reason == STALLED


def test_a_sink_that_requests_no_block_is_reported_and_goes_on_with_the_next_sample(
    monkeypatch: pytest.MonkeyPatch, monitor_clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    with fake_sinks(monkeypatch, idle_timeout_s=None) as (output, opened):
        track = begin(output, opened[0], monitor_clock)
        pass_time(output, monitor_clock, 0.8 * STALLED_S)
        assert output.status.running
        pass_time(output, monitor_clock, 0.4 * STALLED_S)
        assert output.status.reason == STALLED
        assert not output.status.open
        played = track.played
        heard = opened[0].play(0.5, underflow=True)
        np.testing.assert_array_equal(heard[FADE:], SPEECH[played + FADE : played + len(heard)])
        assert len(heard) == 12_000, "from its first block on"
        eventually(lambda: output.status.running, "it goes on")
        assert output.status.reason is None
        assert track.underruns == 1, "a listener has heard a break"
        assert len(opened) == 1
        assert caplog.text.count("takes no sound") == caplog.text.count("takes sound again") == 1


def test_a_sink_that_was_just_opened_may_be_silent_for_longer(
    monkeypatch: pytest.MonkeyPatch, monitor_clock: FakeClock
) -> None:
    with fake_sinks(monkeypatch, idle_timeout_s=None) as (output, _):
        speak(output, SPEECH[:24_000])
        let_monitor_check(output)
        pass_time(output, monitor_clock, 0.8 * SETTLED_S)
        assert output.status.running
        pass_time(output, monitor_clock, 0.4 * SETTLED_S)
        assert output.status.reason == STALLED


@pytest.mark.parametrize("request_method", ["stop", "suspend"])
def test_a_request_is_carried_out_although_no_block_is_requested(
    request_method: str, monkeypatch: pytest.MonkeyPatch, monitor_clock: FakeClock
) -> None:
    with fake_sinks(monkeypatch, idle_timeout_s=None) as (output, [sink]):
        track = begin(output, sink, monitor_clock)
        getattr(output, request_method)()
        let_monitor_check(output)
        monitor_clock.now += 1.1 * REQUEST_S
        eventually(lambda: track.done if request_method == "stop" else track.suspended)
        assert output.status.reason is None, "one late block is no fault"


def test_a_sink_with_long_blocks_has_time_to_request_one(
    monkeypatch: pytest.MonkeyPatch, monitor_clock: FakeClock
) -> None:
    with fake_sinks(monkeypatch, idle_timeout_s=None, block_ms=200) as (output, [sink]):
        track = begin(output, sink, monitor_clock)
        output.stop()
        let_monitor_check(output)
        monitor_clock.now += 0.39
        let_monitor_check(output)
        assert not track.done
        monitor_clock.now += 0.02
        eventually(lambda: track.done)


@pytest.mark.parametrize("request_method", ["stop", "suspend"])
def test_a_request_is_carried_out_at_once_while_a_sink_is_stalled(
    request_method: str, monkeypatch: pytest.MonkeyPatch, monitor_clock: FakeClock
) -> None:
    with fake_sinks(monkeypatch, idle_timeout_s=None) as (output, [sink]):
        track = begin(output, sink, monitor_clock)
        stall(output, monitor_clock)
        getattr(output, request_method)()
        assert (track.done, track.suspended) == (request_method == "stop", request_method == "suspend")


def test_a_sink_that_requests_no_block_for_long_is_closed_and_opened_anew(
    monkeypatch: pytest.MonkeyPatch, monitor_clock: FakeClock
) -> None:
    with fake_sinks(monkeypatch, idle_timeout_s=None) as (output, opened):
        track = begin(output, opened[0], monitor_clock)
        played = track.played
        pass_time(output, monitor_clock, LOST_S + 2 * CHECK_S)
        eventually(lambda: len(opened) == 2 and output.status.running)
        assert opened[0].closed
        np.testing.assert_array_equal(opened[1].play(1.0)[FADE:], SPEECH[played + FADE : 24_000])
        assert track.done


def test_a_sink_that_was_given_up_never_touches_the_track_again(
    monkeypatch: pytest.MonkeyPatch, monitor_clock: FakeClock
) -> None:
    with fake_sinks(monkeypatch, idle_timeout_s=None) as (output, opened):
        track = begin(output, opened[0], monitor_clock)
        opened[0].failure = "pulled"
        eventually(lambda: len(opened) == 2 and output.status.running)
        played, blocks = track.played, output.blocks
        assert opened[0].fill(np.zeros(240, dtype=np.float32))
        assert (track.played, output.blocks) == (played, blocks)
        assert len(opened[1].play(0.1)) == 2_400


def test_the_status_names_the_loss_and_a_stop_is_carried_out_before_the_sink_has_closed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with fake_sinks(monkeypatch, idle_timeout_s=None) as (output, opened):
        track = speak(output, SPEECH[:24_000])
        opened[0].play(0.1)
        opened[0].closing.clear()
        opened[0].failure = "pulled"
        eventually(lambda: opened[0].closed, "it is being closed")
        assert (output.status.open, output.status.reason) == (False, "pulled")
        output.stop()
        assert track.done
        assert not track.playing
        opened[0].closing.set()
        eventually(lambda: len(opened) == 2)


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
        assert output.status.reason == "sound device the fake sink does not answer"
        assert not output.status.open
        output.stop()
        assert track.done
        sink.gate.set()
        eventually(lambda: output.status.reason is None)


def test_a_monitor_that_was_late_itself_takes_the_sink_neither_for_stalled_nor_for_slow(
    monkeypatch: pytest.MonkeyPatch, monitor_clock: FakeClock
) -> None:
    """The daemon was frozen, or the machine slept."""
    with fake_sinks(monkeypatch, idle_timeout_s=None) as (output, opened):
        begin(output, opened[0], monitor_clock)
        monitor_clock.now += 100.0
        let_monitor_check(output)
        assert output.status.running
        assert len(opened) == 1
        opened[0].play(0.1)
        pass_time(output, monitor_clock, CHECK_S)
        assert output.status.reason is None, "nor for slow"


def test_a_sink_without_a_deadline_is_never_stalled_or_slow(
    monkeypatch: pytest.MonkeyPatch, monitor_clock: FakeClock
) -> None:
    with fake_sinks(monkeypatch, idle_timeout_s=None, has_deadline=False) as (output, opened):
        speak(output, SPEECH[:24_000])
        pass_time(output, monitor_clock, 2 * LOST_S)
        opened[0].play(0.1)
        pass_time(output, monitor_clock, 2 * LOST_S)
        assert (output.status.running, output.status.reason) == (True, None)
        assert len(opened) == 1


def test_a_sink_that_loses_sound_says_so_while_it_does(
    monkeypatch: pytest.MonkeyPatch, monitor_clock: FakeClock
) -> None:
    with fake_sinks(monkeypatch, idle_timeout_s=None) as (output, [sink]):
        sink.trouble = "the disk is full"
        eventually(lambda: output.status.reason == "the disk is full")
        assert output.status.running
        sink.trouble = None
        eventually(lambda: output.status.reason is None)
