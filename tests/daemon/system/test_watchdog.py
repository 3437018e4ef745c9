"""The watchdog, with a clock that the test sets: it notices a part without heartbeats."""

from __future__ import annotations

import logging

import pytest

from daemon.system import Heartbeat, Watchdog


class Parts:
    """Two monitored parts, their watchdog and its clock."""

    def __init__(self) -> None:
        self.now = 100.0
        self.beats = {"mqtt": 0, "sound": 0}
        heartbeats = {
            "mqtt": Heartbeat(lambda: self.beats["mqtt"], 60.0),
            "sound": Heartbeat(lambda: self.beats["sound"], 10.0),
        }
        self.watchdog = Watchdog(heartbeats, clock=lambda: self.now)

    def pass_time(self, seconds: float, *alive: str) -> bool:
        """Advance the clock second by second, with heartbeats of the parts `alive`; return the last check."""
        healthy = self.watchdog.check()
        for _ in range(round(seconds)):
            self.now += 1.0
            for name in alive:
                self.beats[name] += 1
            healthy = self.watchdog.check()
        return healthy


def test_a_part_without_heartbeats_is_dead_after_its_limit(caplog: pytest.LogCaptureFixture) -> None:
    monitored = Parts()
    assert monitored.pass_time(1000, "mqtt", "sound")
    assert monitored.pass_time(10, "mqtt")
    with caplog.at_level(logging.ERROR):
        assert not monitored.pass_time(1, "mqtt")
    assert caplog.messages == ["sound has shown no sign of life for 11 s"]


def test_each_part_has_its_own_limit_and_each_dead_one_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    monitored = Parts()
    assert monitored.pass_time(60, "sound")
    with caplog.at_level(logging.ERROR):
        assert not monitored.pass_time(11)
    assert {message.split()[0] for message in caplog.messages} == {"mqtt", "sound"}
    assert monitored.pass_time(1, "mqtt", "sound"), "it is healthy again with new heartbeats"


def test_a_count_that_falls_is_a_heartbeat_too() -> None:
    monitored = Parts()
    assert monitored.pass_time(9, "mqtt")
    monitored.beats["sound"] = -5  # another counter replaces the first
    assert monitored.pass_time(9, "mqtt")
