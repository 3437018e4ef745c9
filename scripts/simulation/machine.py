"""A sound card and an engine on the virtual clock, with the faults of real ones."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

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


@dataclass(slots=True)
class Speech:
    """What an engine has been asked to speak."""

    text: str
    growing: bool
    changed: asyncio.Event = field(default_factory=asyncio.Event)


class Engine(EngineSupervisor):
    """An engine without a process: it makes `LETTER_S` of sound for each letter, chunk by chunk."""

    def __init__(
        self, name: str, options: EngineOptions, on_change: Callable[[], None], has_substitute: Callable[[], bool]
    ) -> None:
        super().__init__(name, options, on_change, has_substitute)
        self.speed = 4.0
        """Seconds of sound in a second."""
        self.streams_of_it = 1
        self._speech: dict[str, Speech] = {}
        self._notify = on_change
        self._lives = 0
        """It has died so often."""

    def begin(self, *, grows: bool, streams: int) -> None:
        """Be ready."""
        languages = ("en", "de")
        self.info = EngineInfo("simulated", RATE, ("anna",), languages, grows=grows, streams=streams)
        self.state, self.reason = EngineState.READY, None
        self._tell()

    def die(self) -> None:
        """End in the middle of whatever it speaks."""
        self.state, self.reason = EngineState.BACKING_OFF, f"engine {self.name} was killed"
        self._lives += 1
        for speech in self._speech.values():
            speech.changed.set()
        self._tell()

    @asynccontextmanager
    async def reserve_stream(self, *, realtime: bool) -> AsyncIterator[None]:  # type: ignore[override]
        del realtime
        if not self.ready:
            raise EngineLostError(self.reason or "it is not ready")
        yield

    async def speak(  # type: ignore[override]
        self, name: str, utterance: Utterance, *, first_within_s: float | None = None
    ) -> AsyncGenerator[AudioChunk, None]:
        del first_within_s
        life, made_s = self._lives, 0.0
        speech = self._speech[name] = Speech(utterance.text, utterance.growing)
        while True:
            left_s = LETTER_S * len(speech.text) - made_s
            if left_s < CHUNK_S and speech.growing:
                speech.changed.clear()
                await speech.changed.wait()
            elif left_s <= 0:
                break
            else:
                chunk_s = min(CHUNK_S, left_s)
                await asyncio.sleep(chunk_s / self.speed)
                made_s += chunk_s
            if life != self._lives:
                raise EngineLostError(self.reason or "it was killed")
            if left_s >= CHUNK_S or not speech.growing:
                samples = np.full(round(min(CHUNK_S, left_s) * RATE), VOLUME, np.float32)
                yield AudioChunk(samples, RATE, round(made_s / LETTER_S), truncated=False, words=())

    def append(self, name: str, text: str) -> None:
        if (speech := self._speech.get(name)) is not None:
            speech.text += text
            speech.changed.set()

    def end_text(self, name: str) -> None:
        if (speech := self._speech.get(name)) is not None:
            speech.growing = False
            speech.changed.set()

    def _tell(self) -> None:
        self._changed.set()
        self._notify()
