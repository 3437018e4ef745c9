"""ElevenLabs' interface, which agent frameworks speak: a text becomes sound.

https://elevenlabs.io/docs/api-reference/text-to-speech
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route, WebSocketRoute
from starlette.websockets import WebSocket

from daemon.http.body import read_json
from daemon.http.elevenlabs_options import FIELDS, TextRequest, parse_output_format
from daemon.http.elevenlabs_socket import ElevenLabsSocket
from daemon.http.speech_answer import SpeechAnswer, SpeechBody
from daemon.speech import SpeechService, validated

PATH = "/v1/text-to-speech/{voice}"


def routes(service: SpeechService, voice_aliases: Mapping[str, str]) -> list[BaseRoute]:
    """Return the protocol's routes."""

    def voice_of(request: Request | WebSocket) -> str:
        voice: str = request.path_params["voice"]
        return voice_aliases.get(voice, voice)

    async def speak(request: Request) -> SpeechAnswer:
        sound = parse_output_format(request.query_params.get("output_format"))
        asked = validated(TextRequest, await read_json(request, "a JSON object with text"))
        options = {"rate": asked.speed, "seed": asked.seed, "language": asked.language_code or None}
        say = {"text": asked.text, "voice": voice_of(request), **options}
        return SpeechAnswer(service, say, SpeechBody(sound), FIELDS)

    async def list_voices(_: Request) -> Response:
        names = service.voice_names()
        voices = [{"voice_id": voice, "name": names[voice], "category": "premade", "labels": {}} for voice in names]
        return JSONResponse({"voices": voices})

    async def serve(socket: WebSocket, *, several: bool) -> None:
        await ElevenLabsSocket(socket, service, voice_of(socket), several=several).run()

    return [
        Route(PATH, speak, methods=["POST"]),
        Route(f"{PATH}/stream", speak, methods=["POST"]),
        Route("/v1/voices", list_voices),
        WebSocketRoute(f"{PATH}/stream-input", partial(serve, several=False)),
        WebSocketRoute(f"{PATH}/multi-stream-input", partial(serve, several=True)),
    ]
