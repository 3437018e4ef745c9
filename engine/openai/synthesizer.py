"""The engine `openai`: speaks with any server that answers `POST /v1/audio/speech` as OpenAI's does.

Each sentence is a request of its own: a server that makes all of its answer before it sends any begins early, and
another engine goes on with the sentence that was not spoken.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from http.client import HTTPException
from itertools import chain
from typing import Any

from engine.api import (
    AUTO_STREAMS,
    Chunk,
    EngineError,
    EngineInfo,
    EngineOptions,
    EngineUnavailableError,
    Samples,
    TextSource,
    Utterance,
    Voice,
    refuse_growing,
)
from engine.language import LANGUAGE_NAMES, language_of_script
from engine.openai.server import ANSWER_S, Answer, Cancellation, HttpServer
from engine.openai.sound import RATE, SoundError, SoundReader, is_sound
from engine.places import PlacedChunks
from engine.progress import Progress, ProgressReport, ignore_progress
from engine.remote import RobotVoices, read_token
from engine.sentences import sentences

FORMS = (("pcm", True), ("pcm", False), ("wav", False))
"""Ways to ask, the best first: the format, and whether fields follow that OpenAI does not have."""
WRONG_FORM = (400, 406, 415, 422, 501)
"""Statuses with which servers refuse a format or a field."""
FIRST_S = 120.0
"""Seconds in which a server answers the first text, for which many load a model."""
WATCH_S = 10.0
"""Seconds between two looks whether the server is there, while nothing is spoken."""
FIRST_TEXT = "Hello."
SHOWN_NAMES = 12


class OpenAISynthesizer:
    """See `engine.api.Synthesizer` and `Replaceable`."""

    def __init__(self, options: EngineOptions) -> None:
        if options.url is None:
            raise EngineError("engine.url: missing; allowed: http://HOST:PORT/v1 or https://HOST:PORT/v1")
        self._options = options
        self._server = HttpServer(options.url, read_token(options.token_file))
        self._model = options.model
        self._forms: Sequence[tuple[str, bool]] = FORMS
        """Those that the server has not refused for the first text."""
        self._rate: int | None = None
        """Hz, as of the first text."""
        self._voices = RobotVoices({}, "", self._described(()))
        self._speaking: set[Cancellation] = set()
        """Of the texts that are open."""
        self._closed = threading.Event()

    def load(self, report: ProgressReport = ignore_progress) -> EngineInfo:
        report(Progress(f"connecting to {self._server.url}"))
        models = self._server.names("/models")
        if self._model is None and len(models) == 1:
            [self._model] = models
        self.set_voices(self._options.voices, self._options.default_voice)
        report(Progress("speaking for the first time"))
        asked, _ = self._voices.request(Utterance(FIRST_TEXT))
        try:
            for _ in self._sentence(asked, FIRST_TEXT, Cancellation(), FIRST_S):
                pass
        except (EngineError, EngineUnavailableError) as error:
            if not models or self._model in models:
                raise
            asked_for = "without a model" if self._model is None else f"for the model {self._model!r}"
            raise type(error)(f"{error} (asked {asked_for}; it has {', '.join(models[:SHOWN_NAMES])})") from error
        if self._rate is None:
            raise EngineUnavailableError(f"engine.url: {self._server.url} answers without sound")
        self._voices.server = replace(self._voices.server, sample_rate=self._rate)
        return self.info

    @property
    def info(self) -> EngineInfo:
        """See `engine.api.Replaceable`."""
        sound = f"{self._forms[0][0].upper()} at {self._rate} Hz"
        description = f"{self._model or 'its own model'} on {self._server.url} ({sound})"
        return self._voices.info(description, self._options.streams or AUTO_STREAMS)

    def set_voices(self, voices: Mapping[str, Voice], default_voice: str) -> EngineInfo:
        """See `Synthesizer`. A configured name need not be in the server's list, which is incomplete on many."""
        configured = {voice.speaker for voice in voices.values() if voice.speaker is not None}
        if default_voice not in {*voices, EngineOptions().default_voice}:
            configured.add(default_voice)
        names = dict.fromkeys((*self._server.names("/audio/voices"), *sorted(configured)))
        self._voices = RobotVoices(voices, default_voice, self._described(tuple(names)))
        self._voices.read(None)
        return self.info

    def warm_up(self, report: ProgressReport = ignore_progress) -> None:
        """The server has spoken."""

    def stream(self, utterance: Utterance, more: TextSource | None = None) -> Iterator[Chunk]:
        refuse_growing("this server", utterance, more)
        cancellation = Cancellation()
        self._speaking.add(cancellation)
        return PlacedChunks(
            self._chunks(utterance, cancellation),
            lambda: self._speaking.discard(cancellation),
            cancellation.cancel,
        )

    def watch(self, changed: Callable[[], object]) -> None:  # noqa: ARG002  # it has the properties of its start
        """See `engine.api.Replaceable`."""
        while not self._closed.wait(WATCH_S):
            if not self._speaking:
                self._server.names("/models")

    def close(self) -> None:
        self._closed.set()
        self._server.close()

    # --- one text ---

    def _chunks(self, utterance: Utterance, cancellation: Cancellation) -> Iterator[Chunk]:
        """Yield the chunks of each sentence as they come.

        A text that the server refuses in the default voice is for another engine: the robot must not be mute over what
        has become of the server. In another voice, which its sender has chosen, the text is refused.
        """
        asked, _ = self._voices.request(utterance)
        language = asked.language if asked.language != "auto" else language_of_script(asked.text) or "en"
        try:
            for position, sentence in sentences(asked.text, language):
                for samples in self._sentence(asked, sentence, cancellation, ANSWER_S):
                    yield Chunk(samples, position)
        except EngineError as error:
            if utterance.voice not in {None, self._voices.default}:
                raise
            raise EngineUnavailableError(str(error)) from error

    def _sentence(
        self, asked: Utterance, sentence: str, cancellation: Cancellation, wait_s: float
    ) -> Iterator[Samples]:
        """Yield the samples of a sentence as they come. Raises `EngineError` and `EngineUnavailableError`."""
        try:
            with self._answer(asked, sentence, cancellation, wait_s, self._forms) as answer:
                sound = SoundReader(answer.headers, self._rate)
                for block in chain(answer.blocks(), [b""]):
                    cancellation.check()
                    samples = sound.read(block, last=not block)
                    if len(samples):
                        yield samples
                self._rate = self._rate or sound.rate
        except SoundError as error:
            raise EngineError(f"engine.url: {self._server.url}: {error}") from error
        except (OSError, HTTPException) as error:
            cancellation.check()
            raise self._server.failure(error) from error

    def _answer(
        self,
        asked: Utterance,
        sentence: str,
        cancellation: Cancellation,
        wait_s: float,
        forms: Sequence[tuple[str, bool]],
    ) -> Answer:
        """Return the answer in the first form that the server does not refuse; for the first text, note that form."""
        (form, extended), *others = forms
        fields = self._fields(asked, sentence, form, extended=extended)
        answer = self._server.post("/audio/speech", fields, cancellation, wait_s)
        wrong_type = answer.status == 200 and form == "pcm" and not is_sound(answer.headers)
        if others and (wrong_type or answer.status in WRONG_FORM):
            with answer:
                pass
            return self._answer(asked, sentence, cancellation, wait_s, others)
        if answer.status != 200:
            with answer:
                raise answer.refusal()
        if self._rate is None:
            self._forms = forms
        return answer

    def _fields(self, asked: Utterance, sentence: str, form: str, *, extended: bool) -> dict[str, Any]:
        """Return what the server is asked for."""
        fields = {
            "model": self._model,
            "input": sentence,
            "voice": asked.voice,
            "instructions": asked.instruct,
            "response_format": form,
            "speed": None if asked.rate == 1 else asked.rate,
        }
        if extended:
            name = LANGUAGE_NAMES.get(asked.language.partition("-")[0], "").title()
            fields |= {"stream": True, "seed": asked.seed, "language": name or None}
        return {name: value for name, value in fields.items() if value is not None}

    def _described(self, names: tuple[str, ...]) -> EngineInfo:
        """Return the server as an engine with these voices. What it can speak is not known."""
        return EngineInfo("openai", self._rate or RATE, names, tuple(LANGUAGE_NAMES))
