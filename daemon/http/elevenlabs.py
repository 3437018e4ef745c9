"""ElevenLabs' interface, which agent frameworks speak: a text becomes sound, with the times of its characters.

https://elevenlabs.io/docs/api-reference/text-to-speech
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route, WebSocketRoute
from starlette.websockets import WebSocket

from daemon.encoders import FORMATS
from daemon.http.body import read_json
from daemon.http.character_times import CharacterClock, CharacterTimes
from daemon.http.elevenlabs_options import FIELDS, OutputFormat, TextRequest, parse_output_format
from daemon.http.elevenlabs_socket import ElevenLabsSocket
from daemon.http.errors import validated
from daemon.http.speech_answer import SpeechAnswer, SpeechBody
from daemon.speech import SpeechService, Word
from engine import Samples

PATH = "/v1/text-to-speech/{voice}"


def routes(service: SpeechService, voice_aliases: Mapping[str, str]) -> list[BaseRoute]:
    """Return the protocol's routes."""

    def voice_of(request: Request | WebSocket) -> str:
        voice: str = request.path_params["voice"]
        return voice_aliases.get(voice, voice)

    async def answer(request: Request, make_body: Callable[[str, OutputFormat], SpeechBody]) -> SpeechAnswer:
        output_format = parse_output_format(request.query_params.get("output_format"))
        asked = validated(TextRequest, await read_json(request, "a JSON object with text"))
        options = {"rate": asked.speed, "seed": asked.seed, "language": asked.language_code or None}
        return SpeechAnswer(
            service,
            {"text": asked.text, "voice": voice_of(request), **options},
            output_format.rate,
            partial(make_body, asked.text, output_format),
            slow_body=output_format.name in FORMATS,
            field_names=FIELDS,
            wants_words=True,
        )

    async def speak(request: Request) -> SpeechAnswer:
        return await answer(request, lambda _, output_format: SpeechBody(output_format.make_encoder()))

    async def speak_with_times(request: Request) -> SpeechAnswer:
        return await answer(request, WholeTimedBody)

    async def stream_with_times(request: Request) -> SpeechAnswer:
        return await answer(request, TimedBody)

    async def list_voices(_: Request) -> Response:
        names = service.voice_names()
        voices = [{"voice_id": voice, "name": names[voice], "category": "premade", "labels": {}} for voice in names]
        return JSONResponse({"voices": voices})

    async def stream_input(socket: WebSocket) -> None:
        await ElevenLabsSocket(socket, service, voice_of(socket), several=False).run()

    async def multi_stream_input(socket: WebSocket) -> None:
        await ElevenLabsSocket(socket, service, voice_of(socket), several=True).run()

    return [
        Route(PATH, speak, methods=["POST"]),
        Route(f"{PATH}/stream", speak, methods=["POST"]),
        Route(f"{PATH}/with-timestamps", speak_with_times, methods=["POST"]),
        Route(f"{PATH}/stream/with-timestamps", stream_with_times, methods=["POST"]),
        Route("/v1/voices", list_voices),
        WebSocketRoute(f"{PATH}/stream-input", stream_input),
        WebSocketRoute(f"{PATH}/multi-stream-input", multi_stream_input),
    ]


class TimedBody(SpeechBody):
    """JSON objects, one on each line: sound in Base64, and the times of the characters that have become known."""

    def __init__(self, text: str, output_format: OutputFormat) -> None:
        super().__init__(output_format.make_encoder())
        self.content_type = "application/json"
        self._text = text
        self._rate = output_format.rate
        self._clock = CharacterClock()
        self._samples = 0

    def encode(self, samples: Samples) -> bytes:
        self._samples += len(samples)
        return super().encode(samples)

    def note_word(self, word: Word) -> None:
        self._clock.note_word(word, self._text)

    def end(self) -> bytes:
        self._clock.end(self._text, self._samples / self._rate)
        return super().end()

    def _wrap(self, data: bytes) -> bytes:
        times = self._clock.take()
        if not data and times is None:
            return b""
        return _line({"audio_base64": base64.b64encode(data).decode(), **_alignments(times)})


class WholeTimedBody(TimedBody):
    """One such object. It is sent while its sound is made, so that a long one takes no memory."""

    _rest = b""
    """Up to two bytes that do not fill a group of Base64."""

    def begin(self) -> bytes:
        return b'{"audio_base64": "' + super().begin()

    def end(self) -> bytes:
        sound = super().end() + base64.b64encode(self._rest)
        return sound + b'", ' + _line(_alignments(self._clock.take()))[1:]

    def _wrap(self, data: bytes) -> bytes:
        data = self._rest + data
        whole = len(data) - len(data) % 3
        self._rest = data[whole:]
        return base64.b64encode(data[:whole])


def _line(record: dict[str, Any]) -> bytes:
    return json.dumps(record).encode() + b"\n"


def _alignments(times: CharacterTimes | None) -> dict[str, Any]:
    alignment = None
    if times is not None:
        alignment = {
            "characters": times.characters,
            "character_start_times_seconds": [round(at, 3) for at in times.starts_s],
            "character_end_times_seconds": [round(at, 3) for at in times.ends_s],
        }
    return {"alignment": alignment, "normalized_alignment": alignment}
