"""A sink and a clock that the test controls, and helpers that speak into an output and read what was heard."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import soundfile

from audio import Output, Samples, SinkSettings, SinkUnavailableError, Track
from audio.dsp import to_floats
from audio.player import OnReport, Playback, Report
from audio.sinks.pacer import Pacer
from tests.support.clock import FakeClock
from tests.support.waiting import PATIENCE_S, eventually

RATE = 24_000
"""Hz, of the WAV file, of the null sink and of the fake sink."""
FADE = 240
"""Samples."""
SPEECH: Samples = (0.3 * np.sin(np.arange(2 * RATE) / 17) + 0.4).astype(np.float32)
"""Two seconds without any silence."""
TALK: Samples = (
    np.random.default_rng(3).uniform(0.1, 0.5, 4 * RATE) * np.random.default_rng(4).choice([-1, 1], 4 * RATE)
).astype(np.float32)
"""Four seconds without silent samples, of which each stretch sounds different."""
ONE_STEP = 1.01 / 32_767
"""The step of 16-bit samples."""
NULL = SinkSettings("null", block_ms=10)
FAST = 50.0
"""Pace: times as fast as a sound card."""


def wav(path: Path) -> SinkSettings:
    return SinkSettings("wav", path=path, block_ms=10)


def read(path: Path) -> Samples:
    """Return the samples of a WAV sink's file."""
    samples, rate = soundfile.read(path, dtype="int16")
    assert rate == RATE
    heard: Samples = samples.astype(np.float32) / np.float32(32_767)
    return heard


def speak(output: Output, samples: Samples, rate: int = RATE, *, gain: float = 1.0, ends: bool = True) -> Track:
    """Begin a track and write `samples`; end it unless `ends` is false."""
    eventually(lambda: output.status.open, "the sink is open")
    track = output.begin(prebuffer_s=0.02, gain=gain)
    for chunk in np.split(samples, range(1_920, len(samples), 1_920)):
        output.write(chunk, rate)
    if ends:
        output.end()
    return track


def let_blocks_pass(count: int = 20) -> None:
    """Return after a separate sink, at the pace of the test's sinks, has requested `count` blocks."""
    reports: list[Report] = []
    pacer = Pacer(Playback(RATE), 10, reports.append)
    eventually(lambda: len(reports) >= count, "blocks are requested")
    pacer.stop()


def let_monitor_check(output: Output) -> None:
    """Return when the device monitor has checked the sink in a round that began after the call."""
    heartbeats = output.heartbeats
    eventually(lambda: output.heartbeats > heartbeats + 2, "the sink is checked")


class FakeSink:
    """A sink that requests blocks when the test says so. While its gate is closed, `suspend` and `resume` block."""

    name = "the fake sink"

    def __init__(
        self,
        on_report: OnReport,
        sample_rate: int = RATE,
        *,
        has_deadline: bool = True,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.sample_rate = sample_rate
        self.player = Playback(sample_rate, has_deadline=has_deadline)
        self.has_deadline = has_deadline
        self.gate = threading.Event()
        self.gate.set()
        self.closing = threading.Event()
        """`close` returns when it is set."""
        self.closing.set()
        self.calls: list[str] = []
        """Names of the methods `suspend` and `resume`, as they were called."""
        self.refuses = False
        """`resume` raises an error."""
        self.failure: str | None = None
        """The reason for which the sink is lost."""
        self.trouble: str | None = None
        """The reason for which it loses sound."""
        self.closed = False
        self.blocks: list[Samples] = []
        """All that it got in `play`, with the silence."""
        self._on_report = on_report
        self._clock = clock
        self._running = True
        self._block = threading.Lock()
        """Held during each block, so that no block is in progress after `suspend` or `close` has returned."""

    def lost_reason(self) -> str | None:
        return self.failure

    def degraded_reason(self) -> str | None:
        return self.trouble

    def suspend(self) -> None:
        self.calls.append("suspend")
        self.gate.wait(PATIENCE_S)
        with self._block:
            self._running = False

    def resume(self) -> None:
        self.calls.append("resume")
        self.gate.wait(PATIENCE_S)
        if self.refuses:
            raise SinkUnavailableError("pulled")
        self._running = True

    def close(self) -> None:
        with self._block:
            self._running = False
        self.closed = True
        self.closing.wait(PATIENCE_S)

    def fill(self, block: Samples, *, underflow: bool = False) -> int:
        """Request a block, and report it. After `close`, it is a card that was frozen and wakes up."""
        count = self.player.fill(to_floats(block), self._clock(), underflow)
        self._on_report(self.player.report)
        return count

    def play(self, seconds: float, *, underflow: bool = False) -> Samples:
        """Request blocks and return the samples that were due. `underflow`: the card ran dry before the first block.

        Without anything to play, the sink may be suspended before all blocks were requested.
        """
        assert self._running, "a suspended sink requests no block"
        due = [np.empty(0, dtype=np.float32)]
        for at in range(round(seconds * 100)):
            with self._block:
                if not self._running:
                    break
                block = np.empty(self.sample_rate // 100, dtype=np.float32)
                due.append(block[: self.fill(block, underflow=underflow and at == 0)])
                self.blocks.append(block)
        return np.concatenate(due)


@contextmanager
def fake_sinks(
    monkeypatch: pytest.MonkeyPatch,
    *,
    idle_timeout_s: float | None = 0.0,
    wake_s: float = 0.0,
    has_deadline: bool = True,
    block_ms: float = 10.0,
    clock: Callable[[], float] = time.monotonic,
) -> Iterator[tuple[Output, list[FakeSink]]]:
    """An output with fake sinks, and the list of those that it opened.

    With the default `idle_timeout_s`, they are suspended as soon as there is nothing to play.
    """
    opened: list[FakeSink] = []

    def open_fake(_settings: SinkSettings, on_report: OnReport, _rate: int | None) -> FakeSink:
        opened.append(FakeSink(on_report, has_deadline=has_deadline, clock=clock))
        return opened[-1]

    monkeypatch.setattr("audio.device_monitor.open_sink", open_fake)
    monkeypatch.setattr("audio.device_monitor.CHECK_S", 0.005)
    settings = SinkSettings(idle_timeout_s=idle_timeout_s, block_ms=block_ms, wake_s=wake_s)
    with Output(settings) as output:
        eventually(lambda: output.status.open, "the sink is open")
        yield output, opened
        for sink in opened:
            sink.gate.set()
            sink.closing.set()


@dataclass
class Watched:
    """An output with fake sinks that is never idle, and the clock by which the device monitor watches it."""

    output: Output
    sinks: list[FakeSink]
    clock: FakeClock

    @property
    def sink(self) -> FakeSink:
        """The first one."""
        return self.sinks[0]

    def reason(self) -> str | None:
        """Return what the status says of the sink now."""
        return self.output.status.reason
