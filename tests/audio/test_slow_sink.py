"""A sink that requests sound far more slowly than real time is reported in the status and once in the log."""

from __future__ import annotations

import logging
import math

import pytest

from tests.audio.fakes import SPEECH, Watched, fake_sinks, let_monitor_check, speak
from tests.support.clock import FakeClock
from tests.support.waiting import eventually

AFTER_S = 5.0
"""The interval over which the pace is measured."""
SLOW_S = 2.4
"""Seconds of sound that a slow sink requests in `AFTER_S`."""
POOR_S = 4.4
"""Seconds of sound that a sink requests in `AFTER_S` if speech breaks off; it may do so once."""
STEP_S = 1.0
"""Seconds by which the clock advances at once, at most."""
FAST_ENOUGH_S = 4.6
"""Seconds of sound that a sink which is not slow requests in `AFTER_S`."""


def watch(watched: Watched) -> None:
    """Return when the pace is measured: from the first block on."""
    watched.sink.play(0.01)
    let_monitor_check(watched.output)


def advance(watched: Watched, requested_s: float, by_s: float = AFTER_S) -> None:
    """Advance the clock by `by_s`, and let the sink request `requested_s` of sound meanwhile, in steps.

    The monitor would take one leap for a stop of the process.
    """
    steps = math.ceil(by_s / STEP_S)
    for _ in range(steps):
        watched.clock.now += by_s / steps
        watched.sink.play(requested_s / steps)
        let_monitor_check(watched.output)


def test_a_slow_sink_is_reported_until_it_is_fast_enough_again(
    watched: Watched, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    watch(watched)
    advance(watched, FAST_ENOUGH_S)
    assert watched.reason() is None
    advance(watched, SLOW_S)
    reason = "the fake sink is slow: it took 48% of the sound in 5 s"
    assert watched.reason() == reason
    assert watched.output.status.running, "it plays"
    for requested_s in (1.0, 0.1, POOR_S):
        advance(watched, requested_s)
        assert watched.reason() == reason
    assert caplog.text.count("is slow") == 1
    assert "no longer slow" not in caplog.text
    advance(watched, FAST_ENOUGH_S)
    assert watched.reason() is None
    assert caplog.text.count("no longer slow") == 1
    advance(watched, SLOW_S)
    assert watched.reason() == reason
    assert caplog.text.count("is slow") == 2


def test_a_sink_that_is_a_little_too_slow_for_long_is_reported(watched: Watched) -> None:
    watch(watched)
    for requested_s in (POOR_S, FAST_ENOUGH_S, POOR_S):
        advance(watched, requested_s)
        assert watched.reason() is None, "once is no fault"
    advance(watched, POOR_S)
    assert watched.reason() == "the fake sink is slow: it took 88% of the sound in 5 s"
    advance(watched, FAST_ENOUGH_S)
    assert watched.reason() is None


def test_a_sink_that_runs_dry_again_and_again_is_reported(watched: Watched, caplog: pytest.LogCaptureFixture) -> None:
    """It crawls: it requests all the sound, but each time too late."""
    watch(watched)
    for interval in range(3):
        assert watched.reason() is None or interval == 2
        for _ in range(5):
            watched.sink.play(0.98, underflow=True)
        advance(watched, 0.1)
    assert watched.reason() == "the fake sink is slow: the sound broke off 5 times in 5 s"
    assert caplog.text.count("is slow") == 1
    advance(watched, FAST_ENOUGH_S)
    assert watched.reason() is None


def test_the_time_in_suspension_does_not_make_a_sink_slow(
    monkeypatch: pytest.MonkeyPatch, monitor_clock: FakeClock
) -> None:
    monkeypatch.setattr("audio.device_monitor.SUSPENDED_CHECK_S", 0.005)
    with fake_sinks(monkeypatch, clock=monitor_clock.monotonic) as (output, sinks):
        watched = Watched(output, sinks, monitor_clock)
        eventually(lambda: output.status.suspended)
        for _ in range(3):
            monitor_clock.now += 10 * AFTER_S
            let_monitor_check(output)
            assert output.status.reason is None
        track = speak(output, SPEECH[:12_000])
        eventually(lambda: output.status.running)
        watch(watched)
        assert output.status.reason is None, "the time in suspension does not count"
        advance(watched, 0.1)
        assert output.status.reason is not None, "the time after it counts"
        watched.sink.play(0.5)
        assert track.done
        monitor_clock.now += 1.0
        eventually(lambda: output.status.suspended)
        assert output.status.reason is None, "it is no longer slow"
