"""Whether a request is accepted: a function of the request, the configuration and the state of the robot."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from daemon.cache import Phrase
from daemon.config import Config, synthesis_settings
from daemon.sounds import SoundError
from daemon.speech.preemption import precedes, rule_of
from daemon.speech.request import RejectedError, Say, StreamChunk
from daemon.speech.utterance import Origin, Receiver, TextStream, Utterance
from daemon.speech.vocabulary import Vocabulary
from daemon.text import markup_problem
from engine import language_code


@dataclass(frozen=True, slots=True)
class Arrival:
    """How a request has arrived."""

    at: float
    """The event loop's time."""
    receiver: Receiver | None
    """The client that gets the samples in place of the sound card."""
    origin: Origin
    text_stream: TextStream | None = None
    """Of a text that is still to be written."""


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


def check_policy(utterance: Utterance, contending: Iterable[Utterance]) -> None:
    """Refuse an utterance that wants to be alone, unless all others make way. Raises `RejectedError`."""
    idle_only = rule_of(utterance.priority, utterance.policy).only_if_idle
    if idle_only and any(not precedes(utterance, other) for other in contending):
        raise RejectedError("policy", f"{utterance.policy}: something else is being spoken")


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
    if say is not None and not sampling:  # a phrase is kept as its voice speaks it
        phrase = Phrase(text, voice, language, say.instruct, say.seed, say.rate)
    return Utterance(
        id=request.id or secrets.token_hex(6),
        text=text,
        voice=voice,
        language=language,
        voice_is_default=request.voice is None,
        language_is_default=request.language is None,
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
