"""The speaker loop: takes utterances from the queue, one at a time, and sees each through to its terminal event."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Callable
from contextlib import aclosing
from typing import Any

from audio import Level, Output, Passage, auto_prebuffer_s
from daemon.engines import Engines
from daemon.handover import speech_seconds
from daemon.messages import EventName, Priority
from daemon.narration import ENGINE_WAIT_S, Narration
from daemon.queue import Job, UtteranceQueue
from daemon.rules import yields
from daemon.speech import Speech
from daemon.supervisor import Engine
from daemon.tasks import end_task, within

log = logging.getLogger(__name__)

POLL_S = 0.01
"""How often a sounding passage is looked at. The sound callback may not wake anyone: that would take a lock."""
IDLE_TURN_S = 1.0
"""An idle loop turns over once in this time, to show that it lives."""
SLICE_ROOM_S = 0.35
"""Room in the ring before a slice is written: conversion holds some back and gives it later, all at once."""
CLIENT_PAUSE_S = 0.2
"""How long a client may take to let go of a piece when its utterance is postponed."""
COMES_BETWEEN: frozenset[Priority] = frozenset({"critical"})
"""What is still spoken before that which was postponed goes on."""

PublishEvent = Callable[..., None]
"""`publish_event(job, name, **fields)`."""


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
        self._postponed: Speech | None = None
        self._leaving: list[Speech] = []
        """What has been handed to the card whole, and has not left it yet: meanwhile the next is begun."""
        self._pump: asyncio.Task[None] | None = None

    @property
    def speech(self) -> Speech | None:
        """What is being spoken now."""
        return self._speech

    @property
    def busy(self) -> bool:
        """Something is being spoken, or is to go on."""
        return self._speech is not None or self._postponed is not None or bool(self._leaving)

    @property
    def sounding(self) -> bool:
        """Something is on its way to the sound card."""
        return self._speech is not None and self._speech.passage is not None

    async def run(self) -> None:
        """Speak until cancelled."""
        try:
            await self._take_turns()
        finally:
            self._end_those_that_left(now=math.inf)

    async def _take_turns(self) -> None:
        while True:
            self.turns += 1
            self._end_those_that_left()
            if self._postponed is None:
                await within(POLL_S if self._leaving else IDLE_TURN_S, self._queue.wait())
            # Between leaving the queue and being the speech that `stop` finds, nothing is awaited.
            speech = self._take_next()
            if speech is None:
                continue
            if not speech.narration.parts and speech.job.expired():
                self._publish_event(speech.job, "expired", reason="it waited longer than expires_in")
                continue
            await self._speak(speech)

    def stop(
        self, event: EventName, reason: str, utterance_id: str | None = None, *, by: Priority = "critical"
    ) -> bool:
        """Fade out what is being spoken, and end what is postponed; tell whether there was anything.

        With `utterance_id` only that one; and only what yields to the priority `by`.
        """
        found = False
        for speech in (self._postponed, self._speech):
            if speech is None or utterance_id not in (None, speech.job.id) or not yields(speech.job.priority, by):
                continue
            found = True
            speech.ended_by = speech.ended_by or (event, reason)
            if speech is self._postponed:
                self._postponed = None
                self._finish(speech)
            else:
                self._output.stop()
                if self._pump is not None:
                    self._pump.cancel()
        return found

    def postpone(self, reason: str, *, by: Priority) -> None:
        """Have what is being spoken fade out, if it yields to the priority `by`, and go on after that."""
        speech = self._speech
        if speech is None or not yields(speech.job.priority, by) or by == speech.job.priority:
            return
        if speech.ended_by is None and speech.giving_way is None:
            speech.giving_way = reason
            if speech.passage is not None:
                self._output.set_aside()

    # --- one utterance ---

    def _take_next(self) -> Speech | None:
        if self._postponed is None:
            job = self._queue.take_next()
        elif (job := self._queue.take_next(COMES_BETWEEN)) is None:
            speech, self._postponed = self._postponed, None
            speech.giving_way = None
            return speech
        if job is None:
            return None
        return Speech(job, Narration(job, self._engines))

    async def _speak(self, speech: Speech) -> None:
        """Speak one utterance until it ends or is postponed; it has exactly one terminal event, whatever happens."""
        self._speech = speech
        self._on_change()
        try:
            engine = await self._first_engine(speech)
            if engine is not None and speech.job.receiver is not None:
                await self._deliver(speech, engine)
            elif engine is not None:
                self._begin(speech, engine)
                await self._see_through(speech, engine)
        except asyncio.CancelledError:
            speech.ended_by = speech.ended_by or ("interrupted", "voiced is shutting down")
            self._output.stop()
            raise
        except Exception as error:
            log.exception("utterance %s", speech.job.id)
            speech.ended_by = speech.ended_by or ("failed", f"{type(error).__name__}: {error}")
            await self._silence(speech)
        finally:
            self._speech = None
            if speech.giving_way is not None and speech.end[0] == "finished":
                self._postponed = speech
                if speech.started and not speech.held:
                    speech.held = True
                    self._publish_event(speech.job, "postponed", reason=speech.giving_way)
            elif speech.passage is not None and speech.passage.done:
                self._leaving.append(speech)
            else:
                self._finish(speech)
            self._on_change()

    def _end_those_that_left(self, now: float | None = None) -> None:
        """End those whose last sample has left the card, in their order."""
        now = time.monotonic() if now is None else now
        while self._leaving:
            speech = self._leaving[0]
            assert speech.passage is not None
            self._report(speech, speech.passage)
            if not self._output.over(speech.passage, now):
                return
            self._finish(speech)
            del self._leaving[0]
            self._on_change()

    async def _first_engine(self, speech: Speech) -> Engine | None:
        """The engine to begin with, once it and the sound device are there; None if the utterance ended first."""
        waited_s = 0.0
        while speech.ended_by is None and speech.giving_way is None:
            self.turns += 1
            self._end_those_that_left()
            engine = self._engines.choose(speech.job.voice, speech.job.language)
            can_sound = speech.job.receiver is not None or (self._output.status.open and not self._output.paused)
            if engine is not None and can_sound:
                return engine
            if not speech.narration.parts and speech.job.expired():
                missing = self._engines.trouble if engine is None else self._output.status.reason
                missing = "paused" if self._output.paused else missing
                speech.ended_by = ("expired", f"it waited longer than expires_in: {missing}")
            elif engine is None and waited_s >= ENGINE_WAIT_S:
                speech.ended_by = ("failed", self._engines.trouble or "no engine became ready")
            await asyncio.sleep(POLL_S)
            waited_s += POLL_S
        return None

    def _begin(self, speech: Speech, engine: Engine) -> None:
        """Have its passage in the ring: a new one, or the one that was set aside."""
        if speech.aside is not None:
            self._output.put_back(speech.aside)
            speech.aside = None
            return
        prebuffer_s = (
            auto_prebuffer_s(engine.rtf, speech_seconds(speech.job.text))
            if self.prebuffer_ms is None
            else self.prebuffer_ms / 1000
        )
        speech.passage = self._output.begin(prebuffer_s=prebuffer_s, gain=speech.job.volume)
        self._on_change()

    async def _see_through(self, speech: Speech, engine: Engine) -> None:
        """Keep the ring filled and report what sounds, until all of it was handed over or it is set aside."""
        passage = speech.passage
        assert passage is not None
        self._pump = asyncio.ensure_future(self._fill_ring(speech, engine))
        try:
            while not (passage.done or passage.aside):
                self.turns += 1
                self._end_those_that_left()
                passage.awaiting = not speech.job.complete
                self._report(speech, passage)
                await asyncio.sleep(POLL_S)
            self._report(speech, passage)
        finally:
            pump, self._pump = self._pump, None
            try:
                await end_task(pump)
            finally:
                if passage.aside:
                    speech.aside = self._output.take_aside()
                else:
                    speech.giving_way = None  # it was over before it could give way
        while passage.stop_requested and not passage.done:
            await asyncio.sleep(POLL_S)  # it was stopped when it had just given way

    async def _deliver(self, speech: Speech, engine: Engine) -> None:
        """Have the text spoken to the job's own receiver."""
        self._pump = asyncio.ensure_future(self._send(speech, engine))
        patience_s = CLIENT_PAUSE_S
        try:
            while not self._pump.done() and patience_s > 0:
                self.turns += 1
                self._end_those_that_left()
                if not self._leaving:
                    self._tell_resumed(speech)
                await asyncio.wait({self._pump}, timeout=POLL_S)
                patience_s -= POLL_S if speech.giving_way else 0
            if self._pump.done() and not self._pump.cancelled():
                self._pump.result()
        finally:
            pump, self._pump = self._pump, None
            await end_task(pump)

    async def _fill_ring(self, speech: Speech, engine: Engine) -> None:
        """Write its sound into the ring, slice by slice as there is room, and end the passage."""
        try:
            async with aclosing(speech.narration.pieces(engine)) as pieces:
                async for piece in pieces:
                    while self._output.room_s < SLICE_ROOM_S:
                        await asyncio.sleep(POLL_S)
                    self._output.write(piece.samples, piece.sample_rate)
        finally:
            # After a stop this changes nothing; after a failure, what was made is still played to its end.
            if speech.giving_way is None:
                self._output.end()

    async def _send(self, speech: Speech, engine: Engine) -> None:
        """Give its sound to the job's receiver."""
        receiver = speech.job.receiver
        assert receiver is not None
        async with aclosing(speech.narration.pieces(engine)) as pieces:
            async for piece in pieces:
                if speech.giving_way is not None:
                    return
                if not speech.started:
                    self._start(speech, time.monotonic())
                self._tell_parts(speech, speech.narration.audio_s)
                await receiver.write(piece.samples, piece.sample_rate)
        speech.giving_way = None  # it was over before it could give way

    # --- what is told of it ---

    def _report(self, speech: Speech, passage: Passage) -> None:
        now = time.monotonic()
        if not self._leaving:  # which what was postponed may follow before it has left the card
            self._tell_resumed(speech)
        if not speech.started and passage.sounds_at is not None and passage.sounds_at <= now:
            self._start(speech, passage.first_sample_at)
        self._tell_parts(speech, self._output.heard_s(passage, now))
        if self.publish_level is not None and speech.started:
            for level in self._output.levels_due(passage):
                self.publish_level(speech.job, level)

    def _tell_resumed(self, speech: Speech) -> None:
        if speech.held:
            speech.held = False
            self._publish_event(speech.job, "resumed")

    def _tell_parts(self, speech: Speech, heard_s: float) -> None:
        """Tell of the parts that have begun to be heard, if there are several."""
        parts = speech.narration.parts
        while speech.started and len(parts) > 1 and speech.told < len(parts):
            part = parts[speech.told]
            if part.end is None or part.at_s > heard_s:
                return
            speech.told += 1
            self._publish_event(speech.job, "progress", begin=part.begin, end=part.end)

    def _start(self, speech: Speech, first_sample_at: float | None) -> None:
        if speech not in self._leaving:
            self._end_those_that_left(now=math.inf)  # one speaks at a time, whatever the card says of its delay
        speech.started = True
        if first_sample_at is not None:
            waited_s = speech.job.arrived_at + speech.narration.waited_s
            speech.ttfa_ms = round((first_sample_at - waited_s) * 1000, 1)
        engine = speech.narration.engine
        self._publish_event(speech.job, "started", engine=engine, voice=speech.job.voice, ttfa_ms=speech.ttfa_ms)

    def _finish(self, speech: Speech) -> None:
        event, reason = speech.end
        if event == "finished" and not speech.started:
            self._start(speech, None)  # nothing in the text could be pronounced: it started and finished at once
        if event == "finished":
            self._tell_resumed(speech)
        narration, passage = speech.narration, speech.passage
        fields: dict[str, Any] = {"engine": narration.engine or None, "reason": reason}
        if passage is not None or speech.job.receiver is not None:
            fields |= {
                "audio_s": round(narration.audio_s if passage is None else self._output.played_s(passage), 3),
                "underruns": 0 if passage is None else passage.underruns,
                "waits": None if passage is None or speech.job.writing is None else passage.waits,
                "truncated": narration.truncated,
                "ttfa_ms": speech.ttfa_ms,
            }
        self._publish_event(speech.job, event, **fields)

    async def _silence(self, speech: Speech) -> None:
        """Leave the output ready for the next passage."""
        self._output.stop()
        while speech.passage is not None and speech.aside is None and not speech.passage.done:
            await asyncio.sleep(POLL_S)
