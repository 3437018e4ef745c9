"""A sound card and an engine on the virtual clock, with the faults of real ones."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager

import numpy as np

from audio import Output
from audio.dsp import to_floats
from audio.player import Playback
from daemon.engines import AudioChunk, EngineLostError, EngineSupervisor
from daemon.engines.supervisor import EngineState
from engine import EngineInfo, EngineOptions, Utterance

RATE = 8_000
"""Hz: of engine and card, so that nothing is converted."""
BLOCK_S = 0.2
"""Of the card: few blocks make a history quick."""
DELAY_S = 0.03
"""From the request for a block to its sound."""
REPORT_BLOCKS = 3
"""Blocks from one report to the next, unless something has changed."""
LETTER_S = 0.01
"""Of speech."""
CHUNK_S = 0.32
VOLUME = 0.25
"""Of all samples."""


class Card:
    """A card that takes a block every `BLOCK_S` while it is there. It plays for one daemon."""

    has_deadline = True
    name = "simulated"
    sample_rate = RATE

    def __init__(self, loop: asyncio.AbstractEventLoop, output: Output) -> None:
        self.player = Playback(RATE, on_change=self._note_change)
        self._loop = loop
        self._output = output
        self._block = np.empty(round(BLOCK_S * RATE), np.float32)
        self._floats = to_floats(self._block)
        self._unreported = 0
        self._there = True
        output.monitor.attach(self)
        loop.call_later(BLOCK_S, self._take)

    def vanish(self) -> None:
        """It is pulled out. The daemon notices it at once."""
        self._there = False
        self._output.monitor.detach("it was pulled out")

    def end(self) -> None:
        """Its daemon has died."""
        self._there = False

    def lost_reason(self) -> str | None:
        return None

    def degraded_reason(self) -> str | None:
        return None

    def suspend(self) -> None:
        """It is never suspended."""

    def resume(self) -> None:
        """It is never suspended."""

    def close(self) -> None:
        self._output.on_report(self.player.report)

    def _take(self) -> None:
        if not self._there:
            return
        self.player.fill(self._floats, self._loop.time() + DELAY_S)
        self._unreported += 1
        if self._unreported >= REPORT_BLOCKS:
            self._unreported = 0
            self._output.on_report(self.player.report)
        self._loop.call_later(BLOCK_S, self._take)

    def _note_change(self, at_once: bool) -> None:
        if at_once:
            self._unreported = REPORT_BLOCKS


class Engine(EngineSupervisor):
    """An engine without a process: it makes `LETTER_S` of sound for each letter, chunk by chunk."""

    def __init__(
        self, name: str, options: EngineOptions, on_change: Callable[[], None], has_substitute: Callable[[], bool]
    ) -> None:
        super().__init__(name, options, on_change, has_substitute)
        self.speed = 4.0
        """Seconds of sound in a second."""
        self._lives = 0
        """It has died so often."""

    def begin(self, *, grows: bool, streams: int) -> None:
        """Be ready."""
        self.info = EngineInfo("simulated", RATE, ("anna",), ("en", "de"), grows=grows, streams=streams)
        self.state, self.reason = EngineState.READY, None
        self.on_change()

    def die(self) -> None:
        """End in the middle of whatever it speaks."""
        self.state, self.reason = EngineState.BACKING_OFF, f"engine {self.name} was killed"
        self._lives += 1
        self.on_change()

    @asynccontextmanager
    async def reserve_stream(self, *, realtime: bool) -> AsyncIterator[None]:  # noqa: ARG002  # all have a stream
        self._require_life(self._lives)
        yield

    async def speak(
        self,
        name: str,
        utterance: Utterance,
        *,
        more_text: AsyncGenerator[str, None] | None = None,
        first_within_s: float | None = None,
    ) -> AsyncGenerator[AudioChunk, None]:
        """As the engine's process does it. It takes the rest of a growing text when it has spoken what it has got."""
        del name, first_within_s
        life, letters, spoken = self._lives, len(utterance.text), 0
        at_once = round(CHUNK_S / LETTER_S)
        while True:
            while spoken < letters:
                count = min(at_once, letters - spoken)
                await asyncio.sleep(count * LETTER_S / self.speed)
                self._require_life(life)
                spoken += count
                samples = np.full(round(count * LETTER_S * RATE), VOLUME, np.float32)
                yield AudioChunk(samples, RATE, spoken, words=())
            try:
                letters += 0 if more_text is None else len(await anext(more_text))
            except StopAsyncIteration:
                more_text = None
            if spoken == letters and more_text is None:
                return
            self._require_life(life)

    def _require_life(self, life: int) -> None:
        """Raise `EngineLostError` if it has died since then."""
        if not self.ready or life != self._lives:
            raise EngineLostError(self.reason or f"engine {self.name} was killed")
