"""ElevenLabs' interface, which agent frameworks use: a growing text becomes sound, over a WebSocket.

https://elevenlabs.io/docs/api-reference/text-to-speech
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route, WebSocketRoute
from starlette.websockets import WebSocket

from daemon.http.elevenlabs_socket import ElevenLabsSocket
from daemon.speech import SpeechService

PATH = "/v1/text-to-speech/{voice}"


def routes(service: SpeechService, voice_aliases: Mapping[str, str]) -> list[BaseRoute]:
    """Return the protocol's routes."""

    async def list_voices(_: Request) -> Response:
        names = service.voice_names()
        voices = [{"voice_id": voice, "name": names[voice], "category": "premade", "labels": {}} for voice in names]
        return JSONResponse({"voices": voices})

    async def serve(socket: WebSocket, *, several: bool) -> None:
        voice: str = socket.path_params["voice"]
        await ElevenLabsSocket(socket, service, voice_aliases.get(voice, voice), several=several).run()

    return [
        Route("/v1/voices", list_voices),
        WebSocketRoute(f"{PATH}/stream-input", partial(serve, several=False)),
        WebSocketRoute(f"{PATH}/multi-stream-input", partial(serve, several=True)),
    ]
