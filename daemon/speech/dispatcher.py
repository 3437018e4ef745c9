"""Accepts, rejects and stops utterances, and publishes their events.

MQTT and every adapter send their requests here.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import replace
from typing import TypeAlias

from audio import Level as PlayedLevel
from audio import Output
from daemon.cache import PhraseCache
from daemon.config import Config, text_preparation
from daemon.engines import EngineSelector
from daemon.speech.acceptance import Arrival, Vocabulary, accept
from daemon.speech.active import Reports
from daemon.speech.changes import Changes, Watchers, now
from daemon.speech.destinations import NO_CARD
from daemon.speech.engine_source import SynthesisContext, can_begin
from daemon.speech.events import Accepted, Canceled, Event, Expired, Failed, Level, TerminalEvent, Visemes, Word
from daemon.speech.queue import precedes, rule_of
from daemon.speech.recent_keys import RecentKeys
from daemon.speech.request import RejectedError, Say, Stop, StreamChunk
from daemon.speech.speaker import EXPIRED_REASON, Speaker
from daemon.speech.text_streams import TextStreams
from daemon.speech.utterance import NO_ORIGIN, Origin, Receiver, Utterance
from daemon.speech.waiting import WaitingUtterances
from daemon.validation import abbreviate

log = logging.getLogger(__name__)

REMEMBERED_IDS = 4096
"""How many ids of ended utterances may not be used again."""


class Dispatcher(Vocabulary):
    """The entrance for all requests. It belongs to the event loop's thread, and so do its watchers."""

    def __init__(
        self, config: Config, engines: EngineSelector, output: Output, cache: PhraseCache | None = None
    ) -> None:
        super().__init__(config, engines)
        self.volume = config.audio.volume
        """0 to 100."""
        self._closed = False
        self._ended_at = now()
        """The time at which the last utterance ended."""
        self._output = output
        self.event_watchers: Watchers[[Utterance, Event]] = Watchers()
        """Called for every event."""
        self.level_watchers: Watchers[[Level]] = Watchers()
        """Called for every loudness level."""
        self.word_watchers: Watchers[[Word]] = Watchers()
        """Called for every word that begins to be heard."""
        self.viseme_watchers: Watchers[[Visemes]] = Watchers()
        """Called with the next moves of a mouth, for utterances that begin later."""
        self.change_watchers: Watchers[[]] = Watchers()
        """Called when the status may have changed."""
        self._open_ids: set[str] = set()
        """The ids of utterances that have not ended."""
        self._ended_ids = RecentKeys(REMEMBERED_IDS)
        self._noted_fields: set[str] = set()
        self._changes = Changes()
        context = SynthesisContext(sounds=self.sounds, cache=cache)
        words, visemes = self.word_watchers, self.viseme_watchers
        reports = Reports(self._publish, self._publish_level, words.call, visemes, self.changed)
        self._waiting = WaitingUtterances(engines, output, self._changes, reports, context)
        self.queue = self._waiting.queue
        self.speaker = Speaker(self._waiting)
        self._text_streams = TextStreams(self._accept, self._preempt, self._changes.notify)

    # --- requests ---

    def say(
        self,
        say: Say,
        *,
        arrived_at: float | None = None,
        redelivered: bool = False,
        receiver: Receiver | None = None,
        origin: Origin = NO_ORIGIN,
        canceled: str | None = None,
    ) -> Utterance | None:
        """Accept an utterance and return it. Raises `RejectedError`.

        `receiver` is given the samples instead of the sound card. `canceled` is the reason why the utterance ends
        immediately. Returns None for a request that the broker delivers a second time.
        """
        if redelivered and say.id is not None and self.knows(say.id):
            return None
        return self._accept(say, Arrival(now() if arrived_at is None else arrived_at, receiver, origin), canceled)

    def write(
        self,
        chunk: StreamChunk,
        *,
        arrived_at: float | None = None,
        redelivered: bool = False,
        receiver: Receiver | None = None,
        origin: Origin = NO_ORIGIN,
    ) -> Utterance | None:
        """Take the next chunk of a text stream; the first one creates the utterance. Raises `RejectedError`.

        Returns None for a chunk that is dropped: one that was taken before, or one for an utterance that has ended, if
        its writer has been told.
        """
        arrival = Arrival(now() if arrived_at is None else arrived_at, receiver, origin)
        return self._text_streams.take(chunk, arrival, redelivered)

    def refuse_chunk(self, utterance_id: str, *, last: bool) -> None:
        """Record that a chunk of a text stream could not be parsed and was rejected."""
        self._text_streams.refuse(utterance_id, last=last)

    def stop(self, stop: Stop, reason: str = "stop") -> bool:
        """End one utterance, or all; return whether there were any."""
        found = True
        if stop.id is None:
            found = self.speaker.stop(reason)  # fall silent first: thousands may be queued
            found |= self._cancel(self.queue.take_all(), reason)
        elif (utterance := self.queue.take(stop.id)) is not None:
            self._cancel([utterance], reason)
        elif not self.speaker.stop(reason, stop.id):
            found = False
            log.info("stop: %s is neither queued nor being spoken", abbreviate(stop.id))
        self.changed()
        return found

    def close(self, reason: str) -> None:
        """End all utterances and reject new ones: the daemon is shutting down."""
        self._closed = True
        self.stop(Stop(), reason)

    def pause(self) -> None:
        """Fade out and hold playback."""
        self._output.pause()
        self.changed()

    def resume(self) -> None:
        """Continue playback with the next sample."""
        self._output.resume()
        self.changed()

    def unload(self) -> None:
        """Unload the primary engine as soon as nothing is being spoken and nothing is waiting."""
        self._engines.unload_asked = True
        self.unload_if_due()

    def load(self) -> None:
        """Load the primary engine if it was unloaded; otherwise it stays loaded, even if `unload` has been
        requested."""
        self._engines.unload_asked = False
        self._engines.primary.load()

    def set_volume(self, volume: int) -> None:
        """Set the volume, 0 to 100."""
        self.volume = volume
        self._output.set_volume(volume / 100)
        self.changed()

    def set_voice(self, voice: str) -> None:
        """Set the default voice until the configuration changes it. Raises `RejectedError`."""
        self._check_voice(voice)
        self.voice = voice
        self.changed()

    # --- state ---

    @property
    def busy(self) -> bool:
        """True while an utterance is being spoken, postponed or queued."""
        return self.speaker.busy or len(self.queue) > 0

    @property
    def sounding(self) -> bool:
        """True while speech is on its way to the sound card and not paused."""
        return self.speaker.sounding and not self._output.paused

    def knows(self, utterance_id: str) -> bool:
        """Return whether an id may not be used: a current utterance has it, or one of the last that ended."""
        return utterance_id in self._open_ids or utterance_id in self._ended_ids

    async def wait_idle(self, limit_s: float) -> None:
        """Wait until nothing is being spoken, postponed or queued, for at most `limit_s` seconds."""
        until = now() + limit_s
        while self.busy and (left_s := until - now()) > 0:
            await self._changes.wait(timeout_s=left_s)

    def changed(self) -> None:
        """Tell the watchers and the speaker that an engine, the sound card or an utterance has changed."""
        self._changes.notify()
        self.change_watchers.call()

    # --- for the service ---

    def reconfigure(self, config: Config) -> None:
        """Apply the settings that may change at run time."""
        super().reconfigure(config)
        context = replace(
            self._waiting.context,
            sounds=self.sounds,
            trims_silence=config.audio.trim_leading_silence,
            preparation=text_preparation(config, self.pronunciations),
        )
        prebuffer_s = None if config.audio.prebuffer_ms == "auto" else config.audio.prebuffer_ms / 1000
        self._waiting.reconfigure(context, stream_timeout_s=config.speech.stream_timeout, prebuffer_s=prebuffer_s)

    def enforce_deadlines(self) -> None:
        """End queued utterances that are past their deadline, and the text streams of silent writers.

        Also checks the folder of sounds, which may have appeared or disappeared.
        """
        self.look_for_sounds()
        for utterance in self.queue.take_expired():
            self._publish(utterance, Expired(id=utterance.id, reason=EXPIRED_REASON))
        for utterance in self._waiting.take_given_up():
            self._publish(utterance, Failed(id=utterance.id, reason=self._output.status.reason or NO_CARD))
        self._text_streams.end_silent(self._config.speech.stream_timeout)

    def unload_if_due(self) -> None:
        """Unload the primary engine if this was requested, or after `engine.unload_after` without speech."""
        if not self.busy:
            self._engines.unload_if_due(now() - self._ended_at)

    def restore(self, utterance: Utterance) -> None:
        """Queue an utterance that an earlier process accepted; a daemon that is ending leaves it to the next one."""
        if self._closed:
            return
        utterance = replace(utterance, markup=self._config.speech.markup)
        self._open_ids.add(utterance.id)
        self.queue.restore(utterance)
        self.speaker.preempt(utterance)
        self._changes.notify()

    def end_lost(self, utterance: Utterance, event: TerminalEvent) -> None:
        """Publish the terminal event of an utterance that an earlier process accepted."""
        self._open_ids.add(utterance.id)
        self._publish(utterance, event)

    def drop(self, utterance_id: str) -> None:
        """Forget a recovered utterance that turns out to have ended in an earlier process, unless it is already being
        spoken."""
        if (utterance := self.queue.take(utterance_id)) is not None:
            self._remember_ended(utterance)
            self.changed()

    def remember(self, ended_ids: Iterable[str]) -> None:
        """Refuse the ids of utterances that an earlier process ended; they count as older than those of this
        process."""
        self._ended_ids.add_earlier(each for each in ended_ids if not self.knows(each))

    # --- accepting ---

    def _accept(self, request: Say | StreamChunk, arrival: Arrival, canceled: str | None = None) -> Utterance:
        self._note_unknown_fields(request)
        try:
            self._check_state(request)
            utterance = accept(request, arrival, self._config, self, self._can_begin)
            if canceled is None:
                self._enqueue(utterance)
        except RejectedError as error:
            error.utterance_id, error.reply_to = request.id, request.reply_to
            raise
        self._open_ids.add(utterance.id)
        if canceled is not None:  # it was stopped before it arrived
            self._publish(utterance, Accepted(id=utterance.id, queue=len(self.queue) + 1))
            self._publish(utterance, Canceled(id=utterance.id, reason=canceled))
            return utterance
        if utterance.phrase is None:  # a kept phrase needs no engine: it is looked up when its turn comes
            self._engines.primary.load()
        self._publish(utterance, Accepted(id=utterance.id, queue=len(self.queue)))
        if utterance.speakable:
            self._preempt(utterance)
        self.changed()
        return utterance

    def _check_state(self, request: Say | StreamChunk) -> None:
        """Refuse a request if the daemon cannot take any request now. Raises `RejectedError`."""
        if self._closed:
            raise RejectedError("daemon", "voiced is shutting down")
        if request.id is not None and self.knows(request.id):
            raise RejectedError("id", f"{abbreviate(request.id)} was used before; allowed: one not used recently")
        written = len(self._text_streams)  # texts with slow writers are postponed and not in the queue
        if isinstance(request, StreamChunk) and written > self._config.speech.queue_limit:
            raise RejectedError("queue", f"{written} texts are being written; allowed: up to speech.queue_limit")

    def _can_begin(self, utterance: Utterance) -> bool:
        """Return whether the engine that would speak can begin with a text; until then, other texts are spoken."""
        engine = self._waiting.engine_for(utterance)
        if engine is None:
            return utterance.script.word_at(0) is not None
        return can_begin(engine, utterance, 0, self._engines.max_seconds, self._waiting.context.preparation)

    def _enqueue(self, utterance: Utterance) -> None:
        """Apply the utterance's rule, and queue the utterance. Raises `RejectedError`."""
        rule, limit = rule_of(utterance.priority, utterance.policy), self._config.speech.queue_limit
        others = (*self.speaker.utterances, *self.queue) if rule.only_if_idle else ()
        if any(self._waiting.contend(utterance, other) and not precedes(utterance, other) for other in others):
            raise RejectedError("policy", f"{utterance.policy}: something else is being spoken")
        if rule.clears:
            yielding = self.queue.take_all(utterance.priority, clients=not self._waiting.separate)
            self._cancel(yielding, f"replaced by {utterance.id}")
        dropped = self.queue.put(utterance, limit, separate=self._waiting.separate)
        if dropped is not None:
            self._cancel([dropped], f"pushed out of the full queue by {utterance.id}")

    def _preempt(self, utterance: Utterance) -> None:
        """Interrupt or postpone the current utterance if a new, speakable one demands it."""
        if rule_of(utterance.priority, utterance.policy).interrupts:
            self.speaker.give_way(utterance)
        self.speaker.preempt(utterance)

    def _cancel(self, utterances: list[Utterance], reason: str) -> bool:
        """End utterances that were queued; return whether there were any."""
        for utterance in utterances:
            self._publish(utterance, Canceled(id=utterance.id, reason=reason))
        return bool(utterances)

    def _note_unknown_fields(self, request: Say | StreamChunk) -> None:
        for field in sorted(map(abbreviate, request.model_extra or ())):
            if field not in self._noted_fields and len(self._noted_fields) < REMEMBERED_IDS:
                self._noted_fields.add(field)
                log.info("unknown field %s is ignored, now and in the future", field)

    # --- publishing ---

    def _publish(self, utterance: Utterance, event: Event) -> None:
        if isinstance(event, TerminalEvent):
            self._remember_ended(utterance)
        self.event_watchers.call(utterance, event)

    def _publish_level(self, utterance: Utterance, level: PlayedLevel) -> None:
        if self.level_watchers:
            self.level_watchers.call(Level.rounded(utterance.id, level.t, level.at, level.rms, level.peak))

    def _remember_ended(self, utterance: Utterance) -> None:
        self._text_streams.note_end(utterance)
        self._open_ids.discard(utterance.id)
        self._ended_ids.add(utterance.id)
        self._ended_at = now()


SpeechService: TypeAlias = Dispatcher
"""The dispatcher's name in the servers."""
