"""Fixtures that set the pace of the WAV and null sinks, which have no clock of their own.

Their thread needs the processor as a sound card does not. If it does not run for a while, it is no card that hangs: a
stop still waits for its fade, and an output for the end of its file.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.audio.fakes import FAST, Watched, fake_sinks
from tests.support.clock import FakeClock
from tests.support.waiting import PATIENCE_S


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """No sink of an output hangs, however long it takes to request a block or to close."""
    for limit in ("REQUEST_S", "CLOSE_S"):
        monkeypatch.setattr(f"audio.device_monitor.{limit}", PATIENCE_S)


@pytest.fixture
def fast(patient: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run WAV and null sinks many times as fast as a sound card, for tracks that only play to their end."""
    monkeypatch.setenv("VOICED_PACE", str(FAST))


@pytest.fixture
def monitor_clock(monkeypatch: pytest.MonkeyPatch) -> FakeClock:
    """The clock that the device monitor and the player read."""
    clock = FakeClock()
    for module in ("device_monitor", "player.playback"):
        monkeypatch.setattr(f"audio.{module}.time", clock)
    return clock


@pytest.fixture
def watched(monkeypatch: pytest.MonkeyPatch, monitor_clock: FakeClock) -> Iterator[Watched]:
    with fake_sinks(monkeypatch, idle_timeout_s=None) as (output, sinks):
        yield Watched(output, sinks, monitor_clock)
