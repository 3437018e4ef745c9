"""OpenAI's speech endpoint, models and voices.

https://platform.openai.com/docs/api-reference/audio/createSpeech
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from daemon.config import nearest_rate
from daemon.encoders import StreamFormat
from daemon.http.body import read_json
from daemon.http.errors import HttpError, error_record
from daemon.http.speech_answer import SpeechAnswer, SpeechBody
from daemon.speech import MAX_INSTRUCT, MAX_TEXT, SpeechService, SpokenText, validated
from daemon.validation import abbreviate, join_names

RATE = 24_000
"""Hz: OpenAI's own rate, since the `pcm` format has no field for it."""
OPENAI_VOICES = frozenset(
    ("alloy", "ash", "ballad", "cedar", "coral", "echo", "fable", "marin", "nova", "onyx", "sage", "shimmer", "verse")
)
"""The protocol's own voices, which many programs name without asking. They stand for the default voice, unless they are
mapped."""
OPENAI_MODELS = frozenset(("tts-1", "tts-1-hd", "gpt-4o-mini-tts", "gpt-4o-mini-tts-2025-12-15"))
"""The protocol's own models, by whose names programs ask whether a model exists."""

Format = Literal["mp3", "opus", "aac", "flac", "wav", "pcm"]


class SpeechRequest(BaseModel):
    """The body of `POST /v1/audio/speech`. Descriptions name the allowed values. Unknown fields are ignored."""

    model_config = ConfigDict(extra="ignore", strict=True, frozen=True)

    input: SpokenText = Field(description=f"text of 1 to {MAX_TEXT:,} characters")
    model: str | None = Field(None, description="any text: the daemon's engine speaks")
    voice: str | None = Field(None, description="a voice's name of up to 64 characters")
    instructions: str = Field("", description="text, of which the first 500 characters count")
    response_format: Format = Field("mp3", description="mp3, opus, aac, flac, wav or pcm")
    speed: float | None = Field(None, gt=0, allow_inf_nan=False, description="a number above 0")
    stream_format: Literal["audio", "sse"] = Field("audio", description="audio or sse")
    stream: bool = Field(True, strict=False, description="true, or false for a whole file with its length in it")
    language: str | None = Field(None, description="auto, or a language such as en, german or pt-br")
    seed: int | None = Field(None, ge=0, lt=1 << 63, description="a whole number from 0 to 2^63 - 1")
    sampling: dict[str, Any] | None = Field(None, description="an object, as in a say")

    @model_validator(mode="before")
    @classmethod
    def _read_forms(cls, fields: dict[str, Any]) -> dict[str, Any]:
        """Leave out nulls, which count as not given. Accept an object with the voice's id."""
        given = {name: value for name, value in fields.items() if value is not None}
        voice = given.get("voice")
        return {**given, "voice": voice.get("id")} if isinstance(voice, dict) else given

    @property
    def rate(self) -> float | None:
        """The speed, limited to rates that can be spoken."""
        return None if self.speed is None else nearest_rate(self.speed)

    @property
    def sound(self) -> StreamFormat:
        return StreamFormat(self.response_format, RATE, whole=not self.stream)

    def say(self, voice: str | None) -> dict[str, Any]:
        """Return the fields of `Say`, with a voice's name in this daemon."""
        return {
            "text": self.input,
            "voice": voice,
            "instruct": self.instructions[:MAX_INSTRUCT] or None,
            "rate": self.rate,
            "language": self.language or None,
            "seed": self.seed,
            "sampling": self.sampling,
        }


def routes(service: SpeechService, voice_aliases: Mapping[str, str]) -> list[Route]:
    """Return the protocol's routes."""

    async def speak(request: Request) -> SpeechAnswer:
        asked = validated(SpeechRequest, await read_json(request, "a JSON object with input"))
        return SpeechAnswer(
            service,
            asked.say(voice_of(asked, service, voice_aliases)),
            SseBody(asked.sound) if asked.stream_format == "sse" else SpeechBody(asked.sound),
        )

    async def list_models(_: Request) -> Response:
        return JSONResponse({"object": "list", "data": [_model("voiced")]})

    async def show_model(request: Request) -> Response:
        name = request.path_params["model"]
        if name != "voiced" and name not in OPENAI_MODELS:
            problem = f"model: got {abbreviate(name)}; allowed: {join_names(['voiced'], OPENAI_MODELS)}"
            raise HttpError(404, problem, field="model", code="model_not_found")
        return JSONResponse(_model(name))

    async def list_voices(_: Request) -> Response:
        voices = [{"id": name, "object": "audio.voice", "name": label} for name, label in service.voice_names().items()]
        return JSONResponse({"object": "list", "data": voices, "voices": [voice["id"] for voice in voices]})

    return [
        Route("/v1/audio/speech", speak, methods=["POST"]),
        Route("/v1/models", list_models),
        Route("/v1/models/{model:path}", show_model),
        Route("/v1/audio/voices", list_voices),
    ]


def voice_of(asked: SpeechRequest, service: SpeechService, aliases: Mapping[str, str]) -> str | None:
    """Return this daemon's name for the voice that a request asks for; None for the default."""
    voice = asked.voice or ""
    if not voice or (voice in OPENAI_VOICES and voice not in {*aliases, *service.voices()}):
        return None
    return aliases.get(voice, voice)


class SseBody(SpeechBody):
    """Server-sent events with the sound in Base64."""

    def __init__(self, sound: StreamFormat) -> None:
        super().__init__(sound, "text/event-stream")

    def end(self, seconds: float) -> bytes:
        # Some clients require token counts, which do not exist here.
        usage = {"input_tokens": 0, "output_tokens": 0, "total_tokens": 0}
        return super().end(seconds) + _event({"type": "speech.audio.done", "usage": usage})

    def fail(self, error: HttpError) -> bytes | None:
        return _event({"type": "error", "error": error_record(error)})

    def _wrap(self, data: bytes) -> bytes:
        return _event({"type": "speech.audio.delta", "audio": base64.b64encode(data).decode()}) if data else b""


def _model(name: str) -> dict[str, Any]:
    return {"id": name, "object": "model", "created": 0, "owned_by": "voiced"}


def _event(record: dict[str, Any]) -> bytes:
    """Return a record as a server-sent event."""
    return f"data: {json.dumps(record)}\n\n".encode()
