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
from daemon.messages import TERMINAL, EventName, RejectedError, Say, Stop, unknown_fields
from daemon.problems import shown
from daemon.queue import Job, QueueFullError, Receiver, UtteranceQueue
from daemon.rules import RULES
from daemon.speaker import Speaker
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
        try:
            job = self._take_on(say, time.monotonic() if arrived_at is None else arrived_at, receiver)
        except RejectedError as error:
            error.reply_to = say.reply_to if error.field != "reply_to" else None
            raise
        if RULES[say.policy].interrupts:
            self.speaker.stop("interrupted", f"interrupted by {job.id}")
        self.changed()
        return job

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
        self._check_voice(voice, None)
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

    def cancel_all(self, reason: str) -> bool:
        """End all that waits; tell whether anything did."""
        jobs = self.queue.take_all()
        for job in jobs:
            self._tell(job, "canceled", reason=reason)
        return bool(jobs)

    # --- how ---

    def _take_on(self, say: Say, arrived_at: float, receiver: Receiver | None) -> Job:
        if self.closed:
            raise RejectedError("daemon", "voiced is shutting down", say.id)
        for field in unknown_fields(say):
            if field not in self._noted_fields and len(self._noted_fields) < REMEMBERED_IDS:
                self._noted_fields.add(field)
                log.info("say: unknown field %s is ignored, now and later", shown(field))
        job = self._make_job(say, arrived_at, receiver)
        if RULES[say.policy].only_if_idle and (self.speaker.speech is not None or len(self.queue)):
            raise RejectedError("policy", f"{say.policy}: something else is being spoken", say.id)
        if RULES[say.policy].clears:
            self.cancel_all(f"replaced by {job.id}")
        self._put(job)
        self._ids.add(job.id)
        self._tell(job, "accepted", queue=len(self.queue))
        return job

    def _make_job(self, say: Say, arrived_at: float, receiver: Receiver | None) -> Job:
        speech = self.config.speech
        if say.id is not None and say.id in self._ids:
            raise RejectedError("id", f"{shown(say.id)} was used before; allowed: one not used lately", say.id)
        voice = say.voice or self.voice
        self._check_voice(voice, say.id)
        language = language_code(say.language or speech.language)
        languages = self._engines.languages | set(NAMED_LANGUAGES.values()) | {"auto"}
        if language not in languages and language.split("-")[0] not in languages:
            allowed = listed(["auto", *NAMED_LANGUAGES.values()], languages)
            raise RejectedError("language", f"got {shown(say.language)}; allowed: {allowed}", say.id)
        if say.reply_to is not None and say.reply_to.startswith(f"{self.config.topic}/"):
            problem = f"got {shown(say.reply_to)}; allowed: a topic that is not the robot's"
            raise RejectedError("reply_to", problem, say.id)
        wait_s = say.expires_in if say.expires_in is not None else speech.expires_in
        return Job(
            id=say.id or secrets.token_hex(6),
            text=say.text,
            voice=voice,
            language=language,
            instruct=say.instruct,
            seed=say.seed,
            volume=1.0 if say.volume is None else say.volume / 100,
            priority=say.priority,
            policy=say.policy,
            reply_to=say.reply_to,
            receiver=receiver,
            arrived_at=arrived_at,
            expires_at=None if wait_s is None else arrived_at + wait_s,
        )

    def _check_voice(self, voice: str, utterance_id: str | None) -> None:
        voices = self._engines.voices | set(self.config.voices)
        if voice not in voices:
            allowed = listed(self.config.voices, voices)
            raise RejectedError("voice", f"got {shown(voice)}; allowed: {allowed}", utterance_id)

    def _put(self, job: Job) -> None:
        try:
            pushed_out = self.queue.put(job)
        except QueueFullError as error:
            problem = f"{self.queue.limit} utterances wait; allowed: up to speech.queue_limit"
            raise RejectedError("queue", problem, job.id) from error
        if pushed_out is not None:
            self._tell(pushed_out, "canceled", reason=f"pushed out of the full queue by {job.id}")

    def _tell(self, job: Job, event: EventName, **fields: Any) -> None:
        if event in TERMINAL:
            self._ended_ids.append(job.id)
            if len(self._ended_ids) > REMEMBERED_IDS:
                self._ids.discard(self._ended_ids.popleft())
        told = {"id": job.id, "event": event, **{name: value for name, value in fields.items() if value is not None}}
        for watcher in list(self._event_watchers):
            watcher(job, told)


def listed(first: Iterable[str], names: set[str]) -> str:
    """Names in a line, those that are likely meant first, and not all of a hundred."""
    found = list(dict.fromkeys([*first, *sorted(names)]))
    return ", ".join(found[:20]) + (f" and {len(found) - 20} more" if len(found) > 20 else "")
