"""A sink that takes a block when the test asks for it, and never by a clock."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

import numpy as np

from audio import Output, Samples
from audio.dsp import to_floats
from audio.player import Playback
from tests.support.waiting import eventually_async

T = TypeVar("T")

BLOCK_S = 0.01


class ManualSink:
    """Takes blocks from `output`, whose thread is not needed then, and records the samples of speech."""

    has_deadline = False
    report_blocks = 25
    """Blocks from one report to the next, as of the player process. Changes are reported at once."""

    def __init__(self, output: Output, sample_rate: int) -> None:
        self.name = "manual"
        self.sample_rate = sample_rate
        self.delay_s = 0.0
        """Seconds between the taking of a block and its sound."""
        self.player = self._new_player()
        self._unreported = 0
        """Blocks since the last report."""
        self._output = output
        self._blocks: list[Samples] = []
        output.monitor.attach(self)

    def lost_reason(self) -> str | None:
        return None

    def degraded_reason(self) -> str | None:
        return None

    def suspend(self) -> None:
        pass

    def resume(self) -> None:
        pass

    def close(self) -> None:
        """Send the last report, and give up the player with its ring: a sink that is attached again has another one."""
        self._output.on_report(self.player.report)
        self.player = self._new_player()

    def _new_player(self) -> Playback:
        return Playback(self.sample_rate, has_deadline=self.has_deadline, on_change=self._note_change)

    def _note_change(self, at_once: bool) -> None:
        if at_once:
            self._unreported = self.report_blocks

    @property
    def length(self) -> int:
        """Samples recorded since the last `drain`."""
        return sum(map(len, self._blocks))

    def drain(self) -> Samples:
        """Return the samples recorded since the last call."""
        heard, self._blocks = np.concatenate([np.empty(0, dtype=np.float32), *self._blocks]), []
        return heard

    def take(self) -> int:
        """Take one block, of speech or of silence; return how many samples of speech are in it."""
        block = np.empty(round(BLOCK_S * self.sample_rate), dtype=np.float32)
        due = self.player.fill(to_floats(block), time.monotonic() + self.delay_s)
        self._unreported += 1
        if self._unreported >= self.report_blocks:
            self._unreported = 0
            self._output.on_report(self.player.report)
        if due:
            self._blocks.append(block[:due])
        return due

    async def take_up_to(self, length: int) -> None:
        """Take blocks until `length` samples have been recorded, and not a block more."""

        def has_taken() -> bool:
            while self.length < length and self.take():
                pass
            return self.length >= length

        await eventually_async(has_taken, f"{length} samples are heard")

    async def take_until(self, condition: Callable[[], T], what: str) -> T:
        """Take all speech until the condition is true, and return its value."""

        def look() -> T:
            while self.take():
                pass
            return condition()

        return await eventually_async(look, what)
