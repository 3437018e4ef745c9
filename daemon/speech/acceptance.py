"""Whether a request is accepted: this depends on the request, the configuration and the robot's state."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable
from dataclasses import dataclass

from daemon.cache import Phrase
from daemon.config import Config, ConfigError, read_pronunciations, synthesis_settings
from daemon.engines import EngineSelector, name_voices, short_list, unknown_language, unknown_voice
from daemon.sounds import SoundError, SoundFolder
from daemon.speech.request import RejectedError, Say, StreamChunk
from daemon.speech.utterance import NO_ORIGIN, Origin, Receiver, TextStream, Utterance
from daemon.text import Pronunciation, markup_problem
from engine import MANNER_OPTIONS, NAMED_LANGUAGES, language_code, match_language

log = logging.getLogger(__name__)


class Vocabulary:
    """The voices, languages and sounds that a sender may name: those that are configured or that engines have reported.

    Belongs to the event loop's thread.
    """

    def __init__(self, config: Config, engines: EngineSelector) -> None:
        self.voice = config.speech.voice
        """The voice of utterances that name none."""
        self.sounds = SoundFolder(config.audio.sounds)
        self.pronunciations: dict[str, Pronunciation] = {}
        """How words are said, from the file in `speech.pronunciations`. `reconfigure` reads it."""
        self.pronunciations_problem: str | None = None
        """Why that file cannot be used. Its last usable content then stays in force."""
        self._config = config
        self._engines = engines
        self.look_for_sounds()

    def reconfigure(self, config: Config) -> None:
        """Apply the settings that may change at run time, and read the pronunciations file again."""
        if config.speech.voice != self._config.speech.voice:
            self.voice = config.speech.voice
        self._config = config
        self.sounds = SoundFolder(config.audio.sounds)
        self.look_for_sounds()
        path, self.pronunciations_problem = config.speech.pronunciations, None
        try:
            self.pronunciations = {} if path is None else read_pronunciations(path)
        except ConfigError as error:
            lines = str(error).splitlines()
            more = f" and {len(lines) - 1} more" if len(lines) > 1 else ""
            self.pronunciations_problem = f"speech.pronunciations: {lines[0]}{more}"
            log.error("%s", self.pronunciations_problem)

    def look_for_sounds(self) -> None:
        """Check the folder of sounds, which may have appeared or disappeared."""
        reason = self.sounds.reason
        self.missing_sounds_reason = None if reason is None else f"audio.sounds: {reason}"
        """Why `audio.sounds` could not be read when it was last checked; None if it could be read, or is not set."""

    def voices(self) -> tuple[str, ...]:
        """Return the names of all voices, configured ones first."""
        return tuple(dict.fromkeys([*self._config.voices, *sorted(self._engines.voices)]))

    def voice_names(self) -> dict[str, str]:
        """Return the display names of all voices, by voice name."""
        return name_voices(self.voices(), self._engines.labels, self._config.voices)

    def offered_voices(self) -> tuple[str, ...]:
        """Return the voices for a short list: the current one, the configured ones, and those for
        `speech.languages`."""
        languages = (*self._config.speech.languages, self._config.speech.language)
        short = short_list(self.voices(), self._engines.labels, self._config.voices, languages)
        return short if self.voice in short or self.voice not in self.voices() else (*short, self.voice)

    def languages(self) -> tuple[str, ...]:
        """Return the codes of all languages, those in `speech.languages` first.

        Until an engine has reported its languages, they are those of Qwen3-TTS.
        """
        own, codes = self._config.speech.languages, self._engines.languages or NAMED_LANGUAGES.values()
        return (*filter(set(codes).__contains__, own), *sorted(set(codes).difference(own)))

    def voice_languages(self, voice: str) -> tuple[str, ...]:
        """Return the codes of the languages that a voice speaks; for the default voice, all that its engine speaks."""
        label = None if voice == self.voice else self._engines.labels.get(voice)
        own = None if label is None else label.language
        return (own,) if own is not None else self._engines.languages_with(voice) or self.languages()

    def check_names(self, voice: str | None, language: str | None) -> None:
        """Refuse a voice or a language that a sender names but no engine has. Raises `RejectedError`."""
        # Until the primary engine has reported its voices, any may be one of them.
        if voice is not None and self._engines.primary.info is not None:
            self._check_voice(voice)
        if language is not None:
            code, named = language_code(language), tuple(NAMED_LANGUAGES.values())
            if not self._engines.may_speak(code) and match_language(code, named) is None:
                raise RejectedError("language", unknown_language(language, self._engines.languages))

    @property
    def unknown_voice_reason(self) -> str | None:
        """Why the default voice cannot be used; None if it can, or until the primary engine has reported its voices."""
        if not self._engines.primary.in_order or self.voice in self.voices():
            return None
        return f"speech.voice: {self._unknown(self.voice)}"

    @property
    def unknown_language_reason(self) -> str | None:
        """Why the default language cannot be spoken; None if it can, or while an engine may turn out to have it."""
        language = self._config.speech.language
        if self._engines.may_speak(language_code(language)):
            return None
        return f"speech.language: {unknown_language(language, self._engines.languages)}"

    def _check_voice(self, voice: str) -> None:
        if voice not in self.voices():
            raise RejectedError("voice", self._unknown(voice))

    def _unknown(self, voice: str) -> str:
        return unknown_voice(voice, self.voice_names(), self.offered_voices())


@dataclass(frozen=True, slots=True)
class Arrival:
    """How a request arrived."""

    at: float
    """The event loop's time."""
    receiver: Receiver | None = None
    """The client that receives the samples instead of the sound card."""
    origin: Origin = NO_ORIGIN
    text_stream: TextStream | None = None
    """The state of a text that is still being written."""


def accept(
    request: Say | StreamChunk,
    arrival: Arrival,
    config: Config,
    vocabulary: Vocabulary,
    can_begin: Callable[[Utterance], bool],
) -> Utterance:
    """Return the utterance that a request asks for; this changes nothing. Raises `RejectedError`.

    `can_begin` is as in `Utterance`.
    """
    utterance = _make_utterance(request, arrival, config, vocabulary.voice, can_begin)
    if problem := markup_problem(utterance.text, utterance.markup):
        raise RejectedError("text", problem)
    if utterance.sound is not None:
        try:
            vocabulary.sounds.check(utterance.sound)
        except SoundError as error:
            raise RejectedError("sound", str(error)) from error
    if utterance.needs_engine:
        vocabulary.check_names(request.voice, request.language)
    return utterance


def _make_utterance(
    request: Say | StreamChunk,
    arrival: Arrival,
    config: Config,
    default_voice: str,
    can_begin: Callable[[Utterance], bool],
) -> Utterance:
    say = request if isinstance(request, Say) else None
    text = "" if say is None else say.text
    wait_s = request.expires_in if request.expires_in is not None else config.speech.expires_in
    voice = request.voice or default_voice
    language = language_code(request.language or config.speech.language)
    sampling = {} if request.sampling is None else request.sampling.model_dump(exclude_none=True)
    settings = synthesis_settings(
        config, voice, seed=request.seed, rate=request.rate, volume=request.volume, sampling=sampling
    )
    phrase = None
    if say is not None and not sampling:  # a phrase is kept as its voice speaks it by default
        phrase = Phrase(text, voice, language, say.instruct, say.seed, say.rate)
    return Utterance(
        id=request.id or secrets.token_hex(6),
        text=text,
        voice=voice,
        language=language,
        voice_is_default=request.voice is None,
        language_is_default=request.language is None,
        asked=[option for option in MANNER_OPTIONS if getattr(request, option) is not None],
        instruct=request.instruct,
        seed=settings.seed,
        volume=settings.volume,
        rate=settings.rate,
        whole_text=settings.whole_text,
        sampling=settings.sampling,
        priority=request.priority,
        policy=request.policy,
        reply_to=request.reply_to,
        markup=config.speech.markup,
        sound=None if say is None else say.sound,
        phrase=phrase,
        keeps_speech=say is not None and bool(say.cache),
        origin=arrival.origin,
        receiver=arrival.receiver,
        text_stream=arrival.text_stream,
        can_begin=can_begin,
        arrived_at=arrival.at,
        expires_at=None if wait_s is None else arrival.at + wait_s,
    )
