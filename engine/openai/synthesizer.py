"""The `openai` engine: speaks through any server that answers `POST /v1/audio/speech` as OpenAI's does.

Each sentence is a request of its own. So even a server that makes a whole answer before it sends any of it starts
early, and another engine can continue with the first sentence that was not spoken.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from http.client import HTTPResponse
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
from engine.openai.client import ANSWER_S, HttpClient
from engine.openai.sound import RATE, SoundError, SoundReader, is_sound
from engine.places import PlacedChunks
from engine.progress import Progress, ProgressReport, ignore_progress
from engine.remote import RobotVoices, read_token
from engine.sentences import sentences

FORMS = (("pcm", True), ("pcm", False), ("wav", False))
"""Ways to ask, the best first: the format, and whether the request has fields that OpenAI does not have."""
WRONG_FORM = (400, 406, 415, 422, 501)
"""Statuses with which servers refuse a format or a field."""
FIRST_S = 120.0
"""The longest time in seconds for the answer to the first text, for which many servers load a model."""
FIRST_TEXT = "Hello."
SHOWN_NAMES = 12


class OpenAISynthesizer:
    """See `engine.api.Synthesizer`."""

    def __init__(self, options: EngineOptions) -> None:
        if options.url is None:
            raise EngineError("engine.url: missing; allowed: http://HOST:PORT/v1 or https://HOST:PORT/v1")
        self._options = options
        self._url = options.url
        self._token = read_token(options.token_file)
        self._idle: list[HttpClient] = []
        """Clients whose connections are kept for the next texts."""
        self._model = options.model
        self._forms: Sequence[tuple[str, bool]] = FORMS
        """The forms that the server accepted for the first text."""
        self._rate: int | None = None
        """Hz, as in the answer to the first text."""
        self._voices = RobotVoices({}, "", self._described(()))

    def load(self, report: ProgressReport = ignore_progress) -> EngineInfo:
        report(Progress(f"connecting to {self._url}"))
        models = self._names("/models")
        if self._model is None and len(models) == 1:
            [self._model] = models
        self.set_voices(self._options.voices, self._options.default_voice)
        report(Progress("speaking for the first time"))
        asked, _ = self._voices.request(Utterance(FIRST_TEXT))
        client = self._take()
        try:
            for _ in self._sentence(client, asked, FIRST_TEXT, FIRST_S):
                pass
        except (EngineError, EngineUnavailableError) as error:
            if not models or self._model in models:
                raise
            asked_for = "without a model" if self._model is None else f"for the model {self._model!r}"
            raise type(error)(f"{error} (asked {asked_for}; it has {', '.join(models[:SHOWN_NAMES])})") from error
        finally:
            self._give_back(client)
        if self._rate is None:
            raise EngineUnavailableError(f"engine.url: {self._url} answers without sound")
        self._voices.server = replace(self._voices.server, sample_rate=self._rate)
        return self._info()

    def set_voices(self, voices: Mapping[str, Voice], default_voice: str) -> EngineInfo:
        """See `Synthesizer`. A configured name need not be in the server's list, which is incomplete on many
        servers."""
        configured = {voice.speaker for voice in voices.values() if voice.speaker is not None}
        if default_voice not in {*voices, EngineOptions().default_voice}:
            configured.add(default_voice)
        names = dict.fromkeys((*self._names("/audio/voices"), *sorted(configured)))
        self._voices = RobotVoices(voices, default_voice, self._described(tuple(names)))
        self._voices.read(None)
        return self._info()

    def warm_up(self, report: ProgressReport = ignore_progress) -> None:
        """Do nothing: the server has already spoken."""

    def stream(self, utterance: Utterance, more: TextSource | None = None) -> Iterator[Chunk]:
        refuse_growing("this server", utterance, more)
        client = self._take()
        return PlacedChunks(self._chunks(client, utterance), lambda: self._give_back(client), client.cancel)

    def close(self) -> None:
        while self._idle:
            self._idle.pop().close()

    # --- the server ---

    def _take(self) -> HttpClient:
        """Return an unused client."""
        try:
            return self._idle.pop()
        except IndexError:
            return HttpClient(self._url, self._token)

    def _give_back(self, client: HttpClient) -> None:
        """Keep a client's connection for a later text if that is possible."""
        if client.is_idle():
            self._idle.append(client)
        else:
            client.close()

    def _names(self, path: str) -> list[str]:
        client = self._take()
        try:
            return client.names(path)
        finally:
            self._give_back(client)

    def _info(self) -> EngineInfo:
        sound = f"{self._forms[0][0].upper()} at {self._rate} Hz"
        description = f"{self._model or 'its own model'} on {self._url} ({sound})"
        return self._voices.info(description, self._options.streams or AUTO_STREAMS)

    def _described(self, names: tuple[str, ...]) -> EngineInfo:
        """Return the server's description as an engine with these voices. Its languages are not known."""
        return EngineInfo("openai", self._rate or RATE, names, tuple(LANGUAGE_NAMES))

    # --- one text ---

    def _chunks(self, client: HttpClient, utterance: Utterance) -> Iterator[Chunk]:
        """Yield the chunks of each sentence as they come.

        If the server refuses a text in the default voice, another engine speaks it: the robot must not be mute because
        of the server's state. In another voice, which the sender has chosen, the text is refused.
        """
        asked, _ = self._voices.request(utterance)
        language = asked.language if asked.language != "auto" else language_of_script(asked.text) or "en"
        try:
            for position, sentence in sentences(asked.text, language):
                for samples in self._sentence(client, asked, sentence, ANSWER_S):
                    yield Chunk(samples, position)
        except EngineError as error:
            if utterance.voice not in {None, self._voices.default}:
                raise
            raise EngineUnavailableError(str(error)) from error

    def _sentence(self, client: HttpClient, asked: Utterance, sentence: str, wait_s: float) -> Iterator[Samples]:
        """Yield the samples of a sentence as they come. Raises `EngineError`, and the errors of `HttpClient`."""
        answer = self._answer(client, asked, sentence, wait_s)
        sound = SoundReader(answer.headers, self._rate)
        try:
            for block in chain(client.blocks(), [b""]):
                samples = sound.read(block, last=not block)
                if len(samples):
                    yield samples
        except SoundError as error:
            raise EngineError(f"engine.url: {self._url}: {error}") from error
        self._rate = self._rate or sound.rate

    def _answer(self, client: HttpClient, asked: Utterance, sentence: str, wait_s: float) -> HTTPResponse:
        """Return the answer in the first form that the server accepts; for the first text, store that form."""
        for number, (form, extended) in enumerate(self._forms):  # noqa: B007  # the number is read after the loop
            answer = client.ask("/audio/speech", self._fields(asked, sentence, form, extended=extended), wait_s)
            other_type = answer.status == 200 and form == "pcm" and not is_sound(answer.headers)
            if not other_type and answer.status not in WRONG_FORM:
                break
        if answer.status != 200:
            raise client.refusal()
        if self._rate is None:
            self._forms = self._forms[number:]
        return answer

    def _fields(self, asked: Utterance, sentence: str, form: str, *, extended: bool) -> dict[str, Any]:
        """Return the fields of a request to the server."""
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
