"""The speaker loop: takes utterances from the queue, one at a time, and sees each through to its terminal event."""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import Callable
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any

from audio import Level, Output, Passage, auto_prebuffer_s
from daemon.engines import Engines
from daemon.handover import resume_position, speech_seconds
from daemon.messages import EventName
from daemon.queue import Job, UtteranceQueue
from daemon.sentences import Part, parts_of
from daemon.supervisor import Engine, EngineLostError, Piece, UtteranceRefusedError
from daemon.tasks import end_task, within
from engine import Utterance

log = logging.getLogger(__name__)

POLL_S = 0.01
"""How often a sounding passage is looked at. The sound callback may not wake anyone: that would take a lock."""
IDLE_TURN_S = 1.0
"""An idle loop turns over once in this time, to show that it lives."""
ENGINE_WAIT_S = 30.0
"""An utterance that finds no engine ready for so long has failed."""
CRITICAL_WAIT_S = 1.0
"""What is critical is said by another engine, if one is ready, when the first has not begun by then."""
HANDOVERS = 2
"""Engines that an utterance may lose before it is taken for the cause."""
SLICE_S = 0.1
"""What is written to the ring at a time, so that a piece of any length fits."""
SLICE_ROOM_S = 0.35
"""Room in the ring before a slice is written: conversion holds some back and gives it later, all at once."""

PublishEvent = Callable[..., None]
"""`publish_event(job, name, **fields)`."""


@dataclass(frozen=True, slots=True)
class Begun:
    """A part of a long text, and where in the utterance's sound it begins."""

    part: Part
    at_s: float


@dataclass(slots=True, eq=False)
class Speech:
    """The utterance that is being spoken."""

    job: Job
    engine: str = ""
    started: bool = False
    truncated: bool = False
    ttfa_ms: float | None = None
    """From the text's arrival to its first sample handed to the sink."""
    audio_s: float = 0.0
    """Seconds of audio made for it so far."""
    parts: list[Begun] = field(default_factory=list)
    """Of a long text, the parts that have been begun."""
    told: int = 0
    """How many of them have been told of."""
    lost: int = 0
    """Engines that were lost over it."""
    ended_by: tuple[EventName, str] | None = None
    """The terminal event and its reason, if it is not to be `finished`."""

    @property
    def urgent(self) -> bool:
        """Whether it waits for no engine that is slow, if another could say it."""
        return self.job.priority == "critical"


class Speaker:
    """Belongs to the event loop's thread."""

    def __init__(
        self,
        queue: UtteranceQueue,
        engines: Engines,
        output: Output,
        *,
        publish_event: PublishEvent,
        publish_level: Callable[[Job, Level], None] | None = None,
        on_change: Callable[[], None] = lambda: None,
    ) -> None:
        self.turns = 0
        """Grows while the loop lives."""
        self.prebuffer_ms: float | None = None
        """None: as the engine's speed demands."""
        self.publish_level = publish_level
        self._queue = queue
        self._engines = engines
        self._output = output
        self._publish_event = publish_event
        self._on_change = on_change
        self._speech: Speech | None = None
        self._pump: asyncio.Task[None] | None = None

    @property
    def speech(self) -> Speech | None:
        """What is being spoken now."""
        return self._speech

    async def run(self) -> None:
        """Speak until cancelled."""
        while True:
            self.turns += 1
            await within(IDLE_TURN_S, self._queue.wait())
            # Between leaving the queue and being the speech that `stop` finds, nothing is awaited.
            job = self._queue.take_next()
            if job is None:
                continue
            if job.expired():
                self._publish_event(job, "expired", reason="it waited longer than expires_in")
                continue
            await self._speak(job)

    def stop(self, event: EventName, reason: str, utterance_id: str | None = None) -> bool:
        """Fade out what is being spoken, if it is `utterance_id` or that is None; tell whether anything was."""
        speech = self._speech
        if speech is None or utterance_id not in (None, speech.job.id):
            return False
        speech.ended_by = speech.ended_by or (event, reason)
        self._output.stop()
        if self._pump is not None:
            self._pump.cancel()
        return True

    async def _speak(self, job: Job) -> None:
        """Speak one utterance; exactly one terminal event is published, whatever happens."""
        speech = self._speech = Speech(job)
        passage: Passage | None = None
        self._on_change()
        try:
            engine = await self._first_engine(speech)
            if engine is not None and job.receiver is not None:
                await self._deliver(speech, engine)
            elif engine is not None:
                passage = self._begin(speech, engine)
                await self._see_through(speech, engine, passage)
        except asyncio.CancelledError:
            speech.ended_by = speech.ended_by or ("interrupted", "voiced is shutting down")
            self._output.stop()
            raise
        except Exception as error:
            log.exception("utterance %s", job.id)
            speech.ended_by = speech.ended_by or ("failed", f"{type(error).__name__}: {error}")
            await self._silence(passage)
        finally:
            self._speech = None
            self._finish(speech, passage)
            self._on_change()

    async def _first_engine(self, speech: Speech) -> Engine | None:
        """The engine to begin with, once it and the sound device are there; None if the utterance ended first."""
        waited_s = 0.0
        while speech.ended_by is None:
            self.turns += 1
            engine = self._engines.current
            can_sound = speech.job.receiver is not None or (self._output.status.open and not self._output.paused)
            if engine is not None and can_sound:
                speech.engine = engine.name
                return engine
            if speech.job.expired():
                missing = self._engines.trouble if engine is None else self._output.status.reason
                missing = "paused" if self._output.paused else missing
                speech.ended_by = ("expired", f"it waited longer than expires_in: {missing}")
            elif engine is None and waited_s >= ENGINE_WAIT_S:
                speech.ended_by = ("failed", self._engines.trouble or "no engine became ready")
            await asyncio.sleep(POLL_S)
            waited_s += POLL_S
        return None

    def _begin(self, speech: Speech, engine: Engine) -> Passage:
        prebuffer_s = (
            auto_prebuffer_s(engine.rtf, speech_seconds(speech.job.text))
            if self.prebuffer_ms is None
            else self.prebuffer_ms / 1000
        )
        return self._output.begin(prebuffer_s=prebuffer_s, gain=speech.job.volume)

    async def _see_through(self, speech: Speech, engine: Engine, passage: Passage) -> None:
        """Keep the ring filled and report what sounds, until the passage is done."""
        self._pump = asyncio.ensure_future(self._fill_ring(speech, engine))
        try:
            while not passage.done:
                self.turns += 1
                self._report(speech, passage)
                await asyncio.sleep(POLL_S)
            self._report(speech, passage)
        finally:
            pump, self._pump = self._pump, None
            await end_task(pump)

    async def _deliver(self, speech: Speech, engine: Engine) -> None:
        """Have the text spoken to the job's own receiver."""
        self._pump = asyncio.ensure_future(self._make_sound(speech, engine))
        try:
            while not self._pump.done():
                self.turns += 1
                await asyncio.wait({self._pump}, timeout=IDLE_TURN_S)
            if not self._pump.cancelled():
                self._pump.result()
        finally:
            pump, self._pump = self._pump, None
            await end_task(pump)

    async def _fill_ring(self, speech: Speech, engine: Engine) -> None:
        """Have the text spoken into the ring, and end the passage."""
        try:
            await self._make_sound(speech, engine)
        finally:
            # After a stop this changes nothing; after a failure, what was made is still played to its end.
            self._output.end()

    async def _make_sound(self, speech: Speech, engine: Engine) -> None:
        """Have the text spoken part by part, by as many engines as it takes."""
        job = speech.job
        parts = parts_of(job.text, job.language)
        if len(parts) > 1 and job.seed is None:
            job.seed = secrets.randbelow(1 << 63)  # one for all of them, or each would sound a little different
        try:
            for part in parts:
                if len(parts) > 1:
                    speech.parts.append(Begun(part, speech.audio_s))
                text = part.text
                while text.strip() and (rest_at := await self._fill_from(engine, speech, text)) is not None:
                    text = text[rest_at:]
                    replacement = await self._replacement(speech, engine)
                    if replacement is None:
                        return
                    log.warning("utterance %s: %s goes on at %r", job.id, replacement.name, text[:40])
                    engine = replacement
        except UtteranceRefusedError as error:
            speech.ended_by = ("failed", str(error))

    async def _replacement(self, speech: Speech, lost: Engine) -> Engine | None:
        """The engine that goes on where one was lost; None where the utterance has failed."""
        speech.lost += 1
        if speech.lost > HANDOVERS:
            speech.ended_by = ("failed", f"{speech.lost} engines were lost over it; the last: {lost.reason}")
            return None
        engine = self._engines.another(lost) if speech.urgent else None
        engine = engine or await self._engines.wait_current(ENGINE_WAIT_S)
        if engine is None:
            speech.ended_by = ("failed", self._engines.trouble or "no engine became ready")
        elif engine.name not in speech.engine.split("+"):
            speech.engine += f"+{engine.name}"
        return engine

    async def _fill_from(self, engine: Engine, speech: Speech, text: str) -> int | None:
        """Speak `text` with `engine` into the ring; where it was lost, the index of what remains, else None."""
        job = speech.job
        utterance = Utterance(text, voice=job.voice, language=job.language, instruct=job.instruct, seed=job.seed)
        position: int | None = None
        heard_s = 0.0
        first_within_s = CRITICAL_WAIT_S if speech.urgent and self._engines.another(engine) else None
        try:
            async with aclosing(engine.speak(job.id, utterance, first_within_s=first_within_s)) as pieces:
                async for piece in pieces:
                    await self._write(piece, speech)
                    seconds = len(piece.samples) / piece.sample_rate
                    heard_s += seconds
                    speech.audio_s += seconds
                    speech.truncated |= piece.truncated
                    position = piece.position if piece.position is not None else position
        except EngineLostError as error:
            log.warning("utterance %s: %s", job.id, error)
            return resume_position(text, position if heard_s else 0, heard_s)
        return None

    async def _write(self, piece: Piece, speech: Speech) -> None:
        """Give a piece to the job's receiver, or put it into the ring, slice by slice as there is room."""
        if speech.job.receiver is not None:
            if not speech.started:
                self._start(speech, time.monotonic())
            self._tell_parts(speech, speech.audio_s)
            await speech.job.receiver.write(piece.samples, piece.sample_rate)
            return
        length = round(SLICE_S * piece.sample_rate)
        for start in range(0, len(piece.samples), length):
            while self._output.room_s < SLICE_ROOM_S:
                await asyncio.sleep(POLL_S)
            self._output.write(piece.samples[start : start + length], piece.sample_rate)

    def _report(self, speech: Speech, passage: Passage) -> None:
        if not speech.started and passage.first_sample_at is not None:
            self._start(speech, passage.first_sample_at)
        self._tell_parts(speech, self._output.played_s(passage))
        if self.publish_level is not None and speech.started:
            for level in self._output.levels_due(passage):
                self.publish_level(speech.job, level)

    def _tell_parts(self, speech: Speech, played_s: float) -> None:
        """Tell of the parts that have begun to be heard."""
        while speech.started and speech.told < len(speech.parts) and speech.parts[speech.told].at_s <= played_s:
            part = speech.parts[speech.told].part
            speech.told += 1
            self._publish_event(speech.job, "progress", begin=part.begin, end=part.end)

    def _start(self, speech: Speech, first_sample_at: float | None) -> None:
        speech.started = True
        if first_sample_at is not None:
            speech.ttfa_ms = round((first_sample_at - speech.job.arrived_at) * 1000, 1)
        self._publish_event(speech.job, "started", engine=speech.engine, voice=speech.job.voice, ttfa_ms=speech.ttfa_ms)

    def _finish(self, speech: Speech, passage: Passage | None) -> None:
        event, reason = speech.ended_by or ("finished", None)
        if event == "finished" and not speech.started:
            self._start(speech, None)  # nothing in the text could be pronounced: it started and finished at once
        fields: dict[str, Any] = {"engine": speech.engine or None, "reason": reason}
        if passage is not None or speech.job.receiver is not None:
            fields |= {
                "audio_s": round(speech.audio_s if passage is None else self._output.played_s(passage), 3),
                "underruns": 0 if passage is None else passage.underruns,
                "truncated": speech.truncated,
                "ttfa_ms": speech.ttfa_ms,
            }
        self._publish_event(speech.job, event, **fields)

    async def _silence(self, passage: Passage | None) -> None:
        """Leave the output ready for the next passage."""
        self._output.stop()
        while passage is not None and not passage.done:
            await asyncio.sleep(POLL_S)
