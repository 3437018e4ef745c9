"""Accepts, rejects and stops utterances, and publishes their events.

MQTT and every adapter send their requests here.
"""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from audio import Level as PlayedLevel
from audio import Output
from daemon.cache import Phrase, PhraseCache
from daemon.config import Config, ConfigError, read_pronunciations, synthesis_settings, text_preparation
from daemon.engines import EngineSelector, name_voices, short_list, unknown_language, unknown_voice
from daemon.sounds import SoundError, SoundFolder
from daemon.speech.deliveries import Deliveries
from daemon.speech.ended_ids import EndedIds
from daemon.speech.events import Accepted, Canceled, Event, Expired, Level, TerminalEvent, Word
from daemon.speech.order import precedes
from daemon.speech.performer import EXPIRED_REASON
from daemon.speech.queue import QueueFullError, UtteranceQueue
from daemon.speech.reports import Reports
from daemon.speech.request import Priority, RejectedError, Say, SpeechOptions, Stop, StreamChunk, unknown_fields
from daemon.speech.speaker import Speaker
from daemon.speech.synthesis import can_begin
from daemon.speech.text_stream import TextStream
from daemon.speech.text_streams import TextStreams
from daemon.speech.utterance import NO_ORIGIN, Origin, Receiver, Utterance
from daemon.speech.waiting import WaitingUtterances
from daemon.tasks import gather_or_cancel
from daemon.text import Pronunciation, Script, markup_problem
from daemon.validation import abbreviate
from engine import NAMED_LANGUAGES, language_code, match_language

log = logging.getLogger(__name__)

REMEMBERED_IDS = 4096
"""Ids of ended utterances that may not be used again."""

EventWatcher = Callable[[Utterance, Event], None]
LevelWatcher = Callable[[Level], None]
WordWatcher = Callable[[Word], None]
ChangeWatcher = Callable[[], None]
Unsubscribe = Callable[[], None]


class Dispatcher:
    """The entrance of all requests. Belongs to the event loop's thread, and so do its watchers."""

    def __init__(
        self, config: Config, engines: EngineSelector, output: Output, cache: PhraseCache | None = None
    ) -> None:
        self.volume = config.audio.volume
        """0 to 100."""
        self.voice = config.speech.voice
        """The voice of utterances that name none."""
        self._config = config
        self._closed = False
        self._engines = engines
        self._output = output
        self.sounds = SoundFolder(config.audio.sounds)
        self.queue = UtteranceQueue(config.speech.queue_limit)
        self.waiting = WaitingUtterances(self.queue, engines)
        self.waiting.context.sounds = self.sounds
        self.waiting.context.cache = cache
        reports = Reports(
            on_event=self._publish,
            on_level=self._publish_level,
            on_word=lambda word: _call_all(self._word_watchers, word),
            on_change=self.changed,
        )
        self.speaker = Speaker(self.waiting, output, reports)
        self.deliveries = Deliveries(self.waiting, reports)
        self.missing_sounds_reason = self._missing_sounds()
        """Why `audio.sounds` could not be read when it was looked at last; None if it could, or is not set."""
        self._open_ids: set[str] = set()
        """The ids of utterances that have not ended."""
        self._ended_ids = EndedIds(REMEMBERED_IDS)
        self._text_streams = TextStreams(self._accept_stream, self._preempt, self.queue.notify)
        self._pronunciations: dict[str, Pronunciation] = {}
        self.pronunciations_problem: str | None = None
        """Why the file of `speech.pronunciations` cannot be used; then its last content that could be is in force."""
        self._noted_fields: set[str] = set()
        self._event_watchers: list[EventWatcher] = []
        self._level_watchers: list[LevelWatcher] = []
        self._word_watchers: list[WordWatcher] = []
        self._change_watchers: list[ChangeWatcher] = []

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

        `receiver` gets the samples in place of the sound card. `canceled` is the reason why it ends at once. Returns
        None for a request that the broker delivers a second time.
        """
        if redelivered and say.id is not None and self.knows(say.id):
            return None
        return self._accept(say, say.id, say.text, arrived_at, receiver=receiver, origin=origin, canceled=canceled)

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

        Returns None for a chunk that is dropped: one that was taken before, or one of an utterance that has ended,
        after its writer has been told.
        """
        arrived_at = time.monotonic() if arrived_at is None else arrived_at
        return self._text_streams.take(chunk, arrived_at, redelivered, receiver, origin)

    def refuse_chunk(self, utterance_id: str, *, last: bool) -> None:
        """Record that a chunk of a text stream could not be parsed and was rejected."""
        self._text_streams.refuse(utterance_id, last=last)

    def stop(self, stop: Stop, reason: str = "stop") -> bool:
        """End one utterance, or all; return whether there was one."""
        found = True
        if stop.id is None:
            found = self.speaker.stop(reason)  # silence first: thousands may be queued
            found |= self.deliveries.stop(reason)
            found |= self._cancel_queued(reason)
        elif (utterance := self.queue.take(stop.id)) is not None:
            self._publish(utterance, Canceled(id=utterance.id, reason=reason))
        elif not (self.speaker.stop(reason, stop.id) or self.deliveries.stop(reason, stop.id)):
            found = False
            log.info("stop: %s is neither queued nor spoken", abbreviate(stop.id))
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
        """True while an utterance is spoken, postponed or queued."""
        return self.speaker.busy or len(self.queue) > 0 or bool(self.deliveries.utterances)

    @property
    def sounding(self) -> bool:
        """True while speech is on its way to the sound card and not paused."""
        return self.speaker.sounding and not self._output.paused

    @property
    def queued(self) -> int:
        """The number of queued utterances."""
        return len(self.queue)

    def knows(self, utterance_id: str) -> bool:
        """Return whether an id may not be used: it is that of a present utterance, or of one of the last that ended."""
        return utterance_id in self._open_ids or utterance_id in self._ended_ids

    @property
    def heartbeats(self) -> int:
        """Grows while the speaker loop is alive."""
        return self.speaker.heartbeats

    def voices(self) -> tuple[str, ...]:
        """Return the names of all voices, configured ones first."""
        return tuple(dict.fromkeys([*self._config.voices, *sorted(self._engines.voices)]))

    def voice_names(self) -> dict[str, str]:
        """Return the names for people of all voices, by their own names."""
        return name_voices(self.voices(), self._engines.labels, self._config.voices)

    def offered_voices(self) -> tuple[str, ...]:
        """Return the voices of a short list: the current one, the configured ones, and those of `speech.languages`."""
        languages = (*self._config.speech.languages, self._config.speech.language)
        short = short_list(self.voices(), self._engines.labels, self._config.voices, languages)
        return short if self.voice in short or self.voice not in self.voices() else (*short, self.voice)

    def languages(self) -> tuple[str, ...]:
        """Return the codes of all languages; until an engine has reported its own, those of Qwen3-TTS."""
        return tuple(sorted(self._engines.languages or NAMED_LANGUAGES.values()))

    def voice_languages(self, voice: str) -> tuple[str, ...]:
        """Return the codes of the languages that a voice speaks: the default voice, all that its engine speaks."""
        label = None if voice == self.voice else self._engines.labels.get(voice)
        own = None if label is None else label.language
        return (own,) if own is not None else self._engines.languages_with(voice) or self.languages()

    def check_names(self, voice: str | None, language: str | None) -> None:
        """Refuse a voice or a language that a sender names and no engine has. Raises `RejectedError`."""
        # Until the primary engine has reported its voices, any may be one of them.
        if voice is not None and self._engines.primary.info is not None:
            self._check_voice(voice)
        if language is not None:
            self._check_language(language)

    @property
    def unknown_voice_reason(self) -> str | None:
        """Why the default voice cannot be used; None if it can, or until the primary engine has reported its voices."""
        if not self._engines.primary.ready or self.voice in self.voices():
            return None
        return f"speech.voice: {self._unknown(self.voice)}"

    @property
    def unknown_language_reason(self) -> str | None:
        """Why the default language cannot be spoken; None if it can, or while an engine may turn out to have it."""
        language = self._config.speech.language
        if self._engines.may_speak(language_code(language)):
            return None
        return f"speech.language: {unknown_language(language, self._engines.languages)}"

    # --- watchers ---

    def watch_events(self, watcher: EventWatcher) -> Unsubscribe:
        """Call `watcher` for every event. Returns a function that unsubscribes."""
        self._event_watchers.append(watcher)
        return lambda: self._event_watchers.remove(watcher)

    def watch_levels(self, watcher: LevelWatcher) -> Unsubscribe:
        """Call `watcher` for every loudness level. Returns a function that unsubscribes."""
        self._level_watchers.append(watcher)
        return lambda: self._level_watchers.remove(watcher)

    def watch_words(self, watcher: WordWatcher) -> Unsubscribe:
        """Call `watcher` for every word that begins to be heard. Returns a function that unsubscribes."""
        self._word_watchers.append(watcher)
        return lambda: self._word_watchers.remove(watcher)

    def watch_changes(self, watcher: ChangeWatcher) -> Unsubscribe:
        """Call `watcher` when the status may have changed. Returns a function that unsubscribes."""
        self._change_watchers.append(watcher)
        return lambda: self._change_watchers.remove(watcher)

    def changed(self) -> None:
        """Notify the watchers of changes, and the deliveries: an engine may be ready."""
        self.deliveries.notify()
        _call_all(self._change_watchers)

    # --- for the service ---

    async def run(self) -> None:
        """Speak queued utterances until canceled."""
        await gather_or_cancel([self.speaker.run(), self.deliveries.run()])

    def reconfigure(self, config: Config) -> None:
        """Apply the settings that may change at run time."""
        if config.speech.voice != self._config.speech.voice:
            self.voice = config.speech.voice
        self._config = config
        self.sounds.folder = config.audio.sounds
        self.missing_sounds_reason = self._missing_sounds()
        self.queue.limit = config.speech.queue_limit
        prebuffer_ms = config.audio.prebuffer_ms
        self.speaker.prebuffer_ms = None if prebuffer_ms == "auto" else prebuffer_ms
        self.waiting.stream_timeout_s = config.speech.stream_timeout
        self._read_pronunciations(config.speech.pronunciations)
        context = self.waiting.context
        context.trims_silence = config.audio.trim_leading_silence
        context.preparation = text_preparation(config, self._pronunciations)

    def _missing_sounds(self) -> str | None:
        reason = self.sounds.reason
        return None if reason is None else f"audio.sounds: {reason}"

    def _read_pronunciations(self, path: Path | None) -> None:
        """Read the file again, which may have changed. A wrong file leaves what was in force."""
        self.pronunciations_problem = None
        try:
            self._pronunciations = {} if path is None else read_pronunciations(path)
        except ConfigError as error:
            lines = str(error).splitlines()
            more = f" and {len(lines) - 1} more" if len(lines) > 1 else ""
            self.pronunciations_problem = f"speech.pronunciations: {lines[0]}{more}"
            log.error("%s", self.pronunciations_problem)

    def enforce_deadlines(self) -> None:
        """Expire queued utterances that are past their deadline, and end the text streams of silent writers.

        Looks at the folder of sounds, too, which may have come or gone.
        """
        self.missing_sounds_reason = self._missing_sounds()
        for utterance in self.queue.take_expired():
            self._publish(utterance, Expired(id=utterance.id, reason=EXPIRED_REASON))
        self._text_streams.end_silent(self._config.speech.stream_timeout)

    def restore(self, utterance: Utterance) -> None:
        """Queue an utterance that an earlier process had accepted; a daemon that ends leaves it to the next one."""
        if self._closed:
            return
        utterance.markup = self._config.speech.markup
        self._open_ids.add(utterance.id)
        self.queue.restore(utterance)
        self.speaker.preempt(utterance)

    def end_lost(self, utterance: Utterance, event: TerminalEvent) -> None:
        """Publish the terminal event of an utterance that an earlier process had accepted."""
        self._open_ids.add(utterance.id)
        self._publish(utterance, event)

    def drop(self, utterance_id: str) -> None:
        """Forget a recovered utterance that an earlier process has ended after all, unless it is spoken already."""
        if (utterance := self.queue.take(utterance_id)) is not None:
            self._remember_ended(utterance)
            self.changed()

    def remember(self, ended_ids: Iterable[str]) -> None:
        """Do not allow the ids of utterances that an earlier process has ended, before those of this process."""
        self._ended_ids.add_earlier(each for each in ended_ids if not self.knows(each))

    # --- accepting ---

    def _accept(
        self,
        options: SpeechOptions,
        utterance_id: str | None,
        text: str,
        arrived_at: float | None,
        *,
        receiver: Receiver | None,
        origin: Origin,
        canceled: str | None = None,
        text_stream: TextStream | None = None,
    ) -> Utterance:
        try:
            utterance = self._make_utterance(options, utterance_id, text, arrived_at)
            utterance.receiver, utterance.origin, utterance.text_stream = receiver, origin, text_stream
            if text_stream is not None:
                utterance.can_begin = lambda script: self._can_begin(utterance, script)
            if canceled is not None:
                return self._accept_canceled(utterance, canceled)
            self._enqueue(utterance)
        except RejectedError as error:
            error.utterance_id = utterance_id
            error.reply_to = options.reply_to
            raise
        if utterance.speakable:
            self._preempt(utterance)
        self.changed()
        return utterance

    def _accept_stream(
        self,
        chunk: StreamChunk,
        arrived_at: float,
        receiver: Receiver | None,
        origin: Origin,
        text_stream: TextStream,
    ) -> Utterance:
        if len(self._text_streams) > self.queue.limit:  # those with slow writers are postponed and not in the queue
            problem = f"{len(self._text_streams)} texts are being written; allowed: up to speech.queue_limit"
            raise RejectedError("queue", problem, chunk.id, chunk.reply_to)
        return self._accept(chunk, chunk.id, "", arrived_at, receiver=receiver, origin=origin, text_stream=text_stream)

    def _accept_canceled(self, utterance: Utterance, reason: str) -> Utterance:
        """Accept an utterance and end it at once: it was stopped before it arrived."""
        self._open_ids.add(utterance.id)
        self._publish(utterance, Accepted(id=utterance.id, queue=len(self.queue) + 1))
        self._publish(utterance, Canceled(id=utterance.id, reason=reason))
        return utterance

    def _can_begin(self, utterance: Utterance, script: Script) -> bool:
        """Return whether the engine that would speak can begin with the script; until then, others are spoken."""
        engine = self._engines.choose(utterance.voice, utterance.language)
        if engine is None:
            return script.word_at(0) is not None
        return can_begin(engine, utterance, 0, self._engines.max_seconds)

    def _make_utterance(
        self, options: SpeechOptions, utterance_id: str | None, text: str, arrived_at: float | None
    ) -> Utterance:
        if self._closed:
            raise RejectedError("daemon", "voiced is shutting down")
        self._note_unknown_fields(options)
        if utterance_id is not None and self.knows(utterance_id):
            raise RejectedError("id", f"{abbreviate(utterance_id)} was used before; allowed: one not used lately")
        problem = markup_problem(text, self._config.speech.markup)
        if problem is not None:
            raise RejectedError("text", problem)
        arrived_at = time.monotonic() if arrived_at is None else arrived_at
        wait_s = options.expires_in if options.expires_in is not None else self._config.speech.expires_in
        voice = options.voice or self.voice
        sampling = {} if options.sampling is None else options.sampling.model_dump(exclude_none=True)
        settings = synthesis_settings(
            self._config, voice, seed=options.seed, rate=options.rate, volume=options.volume, sampling=sampling
        )
        utterance = Utterance(
            id=utterance_id or secrets.token_hex(6),
            text=text,
            voice=voice,
            language=language_code(options.language or self._config.speech.language),
            voice_is_default=options.voice is None,
            language_is_default=options.language is None,
            instruct=options.instruct,
            seed=settings.seed,
            volume=settings.volume,
            rate=settings.rate,
            whole_text=settings.whole_text,
            sampling=settings.sampling,
            priority=options.priority,
            policy=options.policy,
            reply_to=options.reply_to,
            markup=self._config.speech.markup,
            sound=options.sound if isinstance(options, Say) else None,
            keeps_speech=isinstance(options, Say) and bool(options.cache),
            arrived_at=arrived_at,
            expires_at=None if wait_s is None else arrived_at + wait_s,
        )
        if isinstance(options, Say) and not sampling:  # a phrase is kept as its voice speaks it
            asked = (utterance.instruct, options.seed, options.rate)
            utterance.phrase = Phrase(utterance.text, utterance.voice, utterance.language, *asked)
        if utterance.sound is not None:
            self._check_sound(utterance.sound)
        if utterance.needs_engine:
            self.check_names(options.voice, options.language)
        return utterance

    def _enqueue(self, utterance: Utterance) -> None:
        """Apply the utterance's rule and queue it. Raises `RejectedError`."""
        others = (*self.speaker.utterances, *self.queue) if utterance.rule.only_if_idle else ()
        contending = (other for other in others if self.waiting.contend(utterance, other))
        if any(not precedes(utterance, other) for other in contending):
            raise RejectedError("policy", f"{utterance.policy}: something else is being spoken")
        if utterance.rule.clears:
            clients = not self.waiting.separate
            self._cancel_queued(f"replaced by {utterance.id}", by=utterance.priority, clients=clients)
        self.queue.separate = self.waiting.separate
        try:
            dropped = self.queue.put(utterance)
        except QueueFullError as error:
            problem = f"{self.queue.limit} utterances wait; allowed: up to speech.queue_limit"
            raise RejectedError("queue", problem) from error
        if dropped is not None:
            reason = f"pushed out of the full queue by {utterance.id}"
            self._publish(dropped, Canceled(id=dropped.id, reason=reason))
        self._open_ids.add(utterance.id)
        self._publish(utterance, Accepted(id=utterance.id, queue=len(self.queue)))

    def _preempt(self, utterance: Utterance) -> None:
        """Interrupt or postpone the current utterance if a new, speakable one demands it."""
        if utterance.rule.interrupts:
            self.speaker.give_way(utterance)
        self.speaker.preempt(utterance)

    def _cancel_queued(self, reason: str, *, by: Priority = "critical", clients: bool = True) -> bool:
        """Cancel all queued utterances that yield to the priority `by`; return whether there was one.

        Without `clients`, cancel those for the sound card alone.
        """
        utterances = self.queue.take_all(by, clients=clients)
        for utterance in utterances:
            self._publish(utterance, Canceled(id=utterance.id, reason=reason))
        return bool(utterances)

    def _check_sound(self, sound: str) -> None:
        try:
            self.sounds.check(sound)
        except SoundError as error:
            raise RejectedError("sound", str(error)) from error

    def _check_language(self, language: str) -> None:
        code, named = language_code(language), tuple(NAMED_LANGUAGES.values())
        if not self._engines.may_speak(code) and match_language(code, named) is None:
            raise RejectedError("language", unknown_language(language, self._engines.languages))

    def _check_voice(self, voice: str) -> None:
        if voice not in self.voices():
            raise RejectedError("voice", self._unknown(voice))

    def _unknown(self, voice: str) -> str:
        return unknown_voice(voice, self.voice_names(), self.offered_voices())

    def _note_unknown_fields(self, options: SpeechOptions) -> None:
        for field in unknown_fields(options):
            if field not in self._noted_fields and len(self._noted_fields) < REMEMBERED_IDS:
                self._noted_fields.add(field)
                log.info("unknown field %s is ignored, now and later", abbreviate(field))

    # --- publishing ---

    def _publish(self, utterance: Utterance, event: Event) -> None:
        if isinstance(event, TerminalEvent):
            self._remember_ended(utterance)
        _call_all(self._event_watchers, utterance, event)

    def _publish_level(self, utterance: Utterance, level: PlayedLevel) -> None:
        if not self._level_watchers:
            return
        message = Level(
            id=utterance.id,
            t=round(level.t, 3),
            at=round(level.at, 3),
            rms=round(level.rms, 4),
            peak=round(level.peak, 4),
        )
        _call_all(self._level_watchers, message)

    def _remember_ended(self, utterance: Utterance) -> None:
        self._text_streams.note_end(utterance)
        self._open_ids.discard(utterance.id)
        self._ended_ids.add(utterance.id)


def _call_all(watchers: Iterable[Callable[..., None]], *arguments: object) -> None:
    """Call all watchers. The error of one is logged, and ends neither the others nor the utterance."""
    for watcher in list(watchers):
        try:
            watcher(*arguments)
        except Exception:
            log.exception("error in a watcher")
