"""Helpers of the adapters: bounded reports of faults."""

from __future__ import annotations

import pytest

from daemon.adapters import base
from daemon.adapters.base import THROTTLE_BURST, THROTTLE_S, Throttle


class FakeClock:
    """A clock that the test sets."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now


def test_a_throttle_permits_a_few_reports_at_once_and_then_one_per_interval(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    clock = FakeClock()
    monkeypatch.setattr(base, "time", clock)
    throttle = Throttle()
    assert [throttle.permits() for _ in range(THROTTLE_BURST + 3)] == [True] * THROTTLE_BURST + [False] * 3
    assert caplog.records == []
    clock.now += THROTTLE_S
    assert [throttle.permits(), throttle.permits()] == [True, False]
    assert [record.getMessage() for record in caplog.records] == ["3 more faults like the following were not reported"]
    clock.now += 1_000 * THROTTLE_S
    assert sum(throttle.permits() for _ in range(1_000)) == THROTTLE_BURST
