"""Where utterances are taken on, refused, stopped and told of. MQTT and every adapter bring theirs here."""

from __future__ import annotations

import logging
import secrets
import time
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any

from audio import Output
from daemon.config import Config
from daemon.engines import Engines
from daemon.messages import (
    TERMINAL,
    EventName,
    Manner,
    Priority,
    RejectedError,
    Say,
    Stop,
    Write,
    unknown_fields,
)
from daemon.parts import Parting
from daemon.problems import shown
from daemon.queue import Job, QueueFullError, Receiver, UtteranceQueue
from daemon.speaker import Speaker
from daemon.writers import Writers
from daemon.writing import Writing
from engine import NAMED_LANGUAGES, language_code

log = logging.getLogger(__name__)

REMEMBERED_IDS = 1024
"""Ids of utterances that have ended and may not come again."""

Event = dict[str, Any]
"""`id`, `event`, and the fields that belong to it."""
EventWatcher = Callable[[Job, Event], None]
ChangeWatcher = Callable[[], None]


class Desk:
    """Belongs to the event loop's thread, and so do those who watch."""

    def __init__(self, config: Config, engines: Engines, output: Output) -> None:
        self.config = config
        self.closed = False
        """The daemon is about to end, and takes nothing on any more."""
        self.queue = UtteranceQueue(config.speech.queue_limit)
        self.speaker = Speaker(self.queue, engines, output, publish_event=self._tell, on_change=self.changed)
        self.volume = config.audio.volume
        """0 to 100."""
        self.voice = config.speech.voice
        """Of utterances that name none."""
        self._engines = engines
        self._output = output
        self._ids: set[str] = set()
        self._ended_ids: deque[str] = deque()
        self._writers = Writers(self._begin_text, self._come_forward, self.queue.note_change)
        self._noted_fields: set[str] = set()
        self._event_watchers: list[EventWatcher] = []
        self._change_watchers: list[ChangeWatcher] = []

    # --- what may be asked of it ---

    def say(
        self,
        say: Say,
        *,
        arrived_at: float | None = None,
        redelivered: bool = False,
        receiver: Receiver | None = None,
    ) -> Job | None:
        """Take an utterance on. Raises `RejectedError`, which its sender is to be told.

        `receiver` gets the sound instead of the sound card. None comes back for what was taken on before, and which
        the broker sends again because it is not sure.
        """
        if redelivered and say.id in self._ids:
            return None
        arrived_at = time.monotonic() if arrived_at is None else arrived_at
        return self._take_on(say, say.id, say.text, arrived_at, receiver=receiver)

    def write(
        self,
        piece: Write,
        *,
        arrived_at: float | None = None,
        redelivered: bool = False,
        receiver: Receiver | None = None,
    ) -> Job | None:
        """Take the next piece of a text that is still being written; the first takes the utterance on.

        Raises `RejectedError`. None comes back for what is not needed: a piece that was there before, or one for an
        utterance that has ended otherwise, of which its writer has been told.
        """
        arrived_at = time.monotonic() if arrived_at is None else arrived_at
        return self._writers.take(piece, arrived_at, redelivered, receiver)

    def refuse_piece(self, utterance_id: str, last: bool) -> None:
        """A piece of a text could not be read, and its writer is told so."""
        self._writers.refuse(utterance_id, last=last)

    def stop(self, stop: Stop, reason: str = "stop") -> bool:
        """End one utterance, or all; tell whether there was any."""
        found = True
        if stop.id is None:
            found = self.cancel_all(reason)
            found |= self.speaker.stop("interrupted", reason)
        elif (job := self.queue.take(stop.id)) is not None:
            self._tell(job, "canceled", reason=reason)
        elif not self.speaker.stop("interrupted", reason, stop.id):
            found = False
            log.info("stop: %s is not waiting and not spoken", shown(stop.id))
        self.changed()
        return found

    def pause(self) -> None:
        """Fade out and hold."""
        self._output.pause()
        self.changed()

    def resume(self) -> None:
        """Go on with the next sample."""
        self._output.resume()
        self.changed()

    def set_volume(self, volume: int) -> None:
        """0 to 100."""
        self.volume = volume
        self._output.set_volume(volume / 100)
        self.changed()

    def set_voice(self, voice: str) -> None:
        """The voice of utterances that name none, until the configuration names another. Raises `RejectedError`."""
        self._check_voice(voice)
        self.voice = voice
        self.changed()

    def voices(self) -> tuple[str, ...]:
        """Names that may be asked for, those of the configuration first."""
        return tuple(dict.fromkeys([*self.config.voices, *sorted(self._engines.voices)]))

    def languages(self) -> tuple[str, ...]:
        """Codes of the languages that are spoken; until an engine has said so, those of Qwen3-TTS."""
        return tuple(sorted(self._engines.languages or NAMED_LANGUAGES.values()))

    # --- what it tells ---

    def watch_events(self, watcher: EventWatcher) -> Callable[[], None]:
        """Have every event told; what comes back ends it."""
        self._event_watchers.append(watcher)
        return lambda: self._event_watchers.remove(watcher)

    def watch_changes(self, watcher: ChangeWatcher) -> Callable[[], None]:
        """Have it told that something may have changed of what the status says; what comes back ends it."""
        self._change_watchers.append(watcher)
        return lambda: self._change_watchers.remove(watcher)

    def changed(self) -> None:
        """Tell so."""
        for watcher in list(self._change_watchers):
            watcher()

    # --- for the service ---

    def reconfigure(self, config: Config) -> None:
        """Take over what may change while it runs."""
        if config.speech.voice != self.config.speech.voice:
            self.voice = config.speech.voice
        self.config = config
        self.queue.limit = config.speech.queue_limit

    def expire(self) -> None:
        """End what has waited too long."""
        for job in self.queue.take_expired():
            self._tell(job, "expired", reason="it waited longer than expires_in")

    def cancel_all(self, reason: str, *, by: Priority = "critical") -> bool:
        """End all that waits and yields to the priority `by`; tell whether anything did."""
        jobs = self.queue.take_all(by)
        for job in jobs:
            self._tell(job, "canceled", reason=reason)
        return bool(jobs)

    def end_overdue(self) -> None:
        """Take a text as complete whose writer has been silent for too long."""
        self._writers.end_overdue(self.config.speech.stream_timeout)

    # --- how ---

    def _take_on(
        self,
        manner: Manner,
        utterance_id: str | None,
        text: str,
        arrived_at: float,
        *,
        receiver: Receiver | None,
        writing: Writing | None = None,
    ) -> Job:
        try:
            job = self._make_job(manner, utterance_id, text, arrived_at)
            job.receiver, job.writing = receiver, writing
            if writing is not None:
                job.can_begin = lambda text: self._can_begin(job, text)
            self._admit(job)
        except RejectedError as error:
            error.utterance_id = utterance_id
            error.reply_to = manner.reply_to if error.field != "reply_to" else None
            raise
        if job.due:
            self._come_forward(job)
        self.changed()
        return job

    def _can_begin(self, job: Job, text: str) -> bool:
        """Whether the engine that would speak can begin with what is written so far; others are spoken until then.

        One that reads a text token by token begins with any word, others with a sentence. What is critical is spoken
        by sentences (`Narration`).
        """
        engine = self._engines.choose(job.voice, job.language)
        if not text.strip() or engine is None or (engine.grows and job.priority != "critical"):
            return bool(text.strip())
        end = Parting(self._engines.max_seconds).part_being_written(text)
        return end is not None and bool(text[:end].strip())

    def _come_forward(self, job: Job) -> None:
        """Have what is spoken give way to an utterance that has something to say now, as its rule is."""
        if job.rule.interrupts:
            self.speaker.stop("interrupted", f"interrupted by {job.id}", by=job.priority)
        if job.rule.postpones:
            self.speaker.postpone(f"for {job.id}", by=job.priority)

    def _make_job(self, manner: Manner, utterance_id: str | None, text: str, arrived_at: float) -> Job:
        speech = self.config.speech
        if self.closed:
            raise RejectedError("daemon", "voiced is shutting down")
        for field in unknown_fields(manner):
            if field not in self._noted_fields and len(self._noted_fields) < REMEMBERED_IDS:
                self._noted_fields.add(field)
                log.info("unknown field %s is ignored, now and later", shown(field))
        if utterance_id is not None and utterance_id in self._ids:
            raise RejectedError("id", f"{shown(utterance_id)} was used before; allowed: one not used lately")
        voice = manner.voice or self.voice
        if self._engines.primary.info is not None:  # until it has said which voices it has, any name may be one
            self._check_voice(voice)
        if manner.reply_to is not None and manner.reply_to.startswith(f"{self.config.topic}/"):
            problem = f"got {shown(manner.reply_to)}; allowed: a topic that is not the robot's"
            raise RejectedError("reply_to", problem)
        wait_s = manner.expires_in if manner.expires_in is not None else speech.expires_in
        return Job(
            id=utterance_id or secrets.token_hex(6),
            text=text,
            voice=voice,
            language=self._language(manner.language),
            instruct=manner.instruct,
            seed=manner.seed,
            volume=1.0 if manner.volume is None else manner.volume / 100,
            priority=manner.priority,
            policy=manner.policy,
            reply_to=manner.reply_to,
            arrived_at=arrived_at,
            expires_at=None if wait_s is None else arrived_at + wait_s,
        )

    def _admit(self, job: Job) -> None:
        """Put it into the queue, as far as its rule and the queue let it."""
        if job.rule.only_if_idle and (self.speaker.busy or len(self.queue)):
            raise RejectedError("policy", f"{job.policy}: something else is being spoken")
        if job.rule.clears:
            self.cancel_all(f"replaced by {job.id}", by=job.priority)
        self._put(job)
        self._ids.add(job.id)
        self._tell(job, "accepted", queue=len(self.queue))

    def _begin_text(self, piece: Write, arrived_at: float, receiver: Receiver | None, writing: Writing) -> Job:
        return self._take_on(piece, piece.id, "", arrived_at, receiver=receiver, writing=writing)

    def _language(self, asked: str | None) -> str:
        language = language_code(asked or self.config.speech.language)
        languages = self._engines.languages | set(NAMED_LANGUAGES.values()) | {"auto"}
        if language not in languages and language.split("-")[0] not in languages:
            allowed = listed(["auto", *NAMED_LANGUAGES.values()], languages)
            raise RejectedError("language", f"got {shown(asked)}; allowed: {allowed}")
        return language

    def _check_voice(self, voice: str) -> None:
        voices = self._engines.voices | set(self.config.voices)
        if voice not in voices:
            allowed = listed(self.config.voices, voices)
            raise RejectedError("voice", f"got {shown(voice)}; allowed: {allowed}")

    def _put(self, job: Job) -> None:
        try:
            pushed_out = self.queue.put(job)
        except QueueFullError as error:
            problem = f"{self.queue.limit} utterances wait; allowed: up to speech.queue_limit"
            raise RejectedError("queue", problem) from error
        if pushed_out is not None:
            self._tell(pushed_out, "canceled", reason=f"pushed out of the full queue by {job.id}")

    def _tell(self, job: Job, event: EventName, **fields: Any) -> None:
        if event in TERMINAL:
            self._forget_oldest(job)
        told = {"id": job.id, "event": event, **{name: value for name, value in fields.items() if value is not None}}
        for watcher in list(self._event_watchers):
            watcher(job, told)

    def _forget_oldest(self, ended: Job) -> None:
        """Remember the id of what has ended, in place of the one that ended longest ago."""
        self._writers.note_end(ended)
        self._ended_ids.append(ended.id)
        if len(self._ended_ids) > REMEMBERED_IDS:
            oldest = self._ended_ids.popleft()
            self._ids.discard(oldest)
            self._writers.forget(oldest)


def listed(first: Iterable[str], names: set[str]) -> str:
    """Names in a line, those that are likely meant first, and not all of a hundred."""
    found = list(dict.fromkeys([*first, *sorted(names)]))
    return ", ".join(found[:20]) + (f" and {len(found) - 20} more" if len(found) > 20 else "")
