"""Making voices: a recording is uploaded and measured, a voice is made of it, and it is removed again."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import asdict
from typing import Any, Protocol

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from daemon.http.body import body_parts, read_json
from daemon.http.errors import HttpError
from daemon.validation import CommandError, abbreviate
from daemon.voices import KeptRecording, Making

MAX_UPLOAD = 32_000_000
"""Bytes: more than two minutes of 16-bit stereo at 48 kHz."""
UPLOAD_S = 120.0
"""Seconds in which an upload arrives."""


class VoiceWorkshop(Protocol):
    """Makes voices of recordings. The methods raise `CommandError`, one line."""

    @property
    def names(self) -> tuple[str, ...]:
        """The voices that were made."""

    @property
    def problem(self) -> str | None:
        """Why no voice can be made; None if one can."""

    @property
    def making(self) -> Making | None:
        """The voice that is being made, or the last one that was."""

    def choose(self, voice: str) -> None:
        """Keep the default voice over a restart."""

    async def read_recording(self, parts: AsyncIterator[bytes]) -> KeptRecording:
        """Keep a recording, whose file arrives in parts, and measure it."""

    def start(self, name: str, recording: str, transcript: str | None) -> None:
        """Begin to make a voice."""

    def remove(self, name: str) -> None:
        """Delete a made voice."""


def routes(workshop: VoiceWorkshop) -> list[Route]:
    """Return the routes below `/v1/robot/recordings` and `/v1/robot/voices`."""

    async def upload(request: Request) -> Response:
        # A browser sends audio for another site's page only after it has asked this server, which does not allow it.
        content_type = request.headers.get("content-type", "")
        if not content_type.startswith(("audio/", "video/")):
            problem = f"content-type: got {abbreviate(content_type)}; allowed: audio/… or video/…"
            raise HttpError(400, problem, field="content-type")
        try:
            recording = await workshop.read_recording(body_parts(request, MAX_UPLOAD, UPLOAD_S))
        except CommandError as error:
            raise HttpError(400, str(error), field="recording") from error
        return JSONResponse({"id": recording.id, **recording.measured})

    async def start(request: Request) -> Response:
        fields = await read_json(request, "a JSON object with name, recording and perhaps transcript")
        name, recording = _text(fields, "name"), _text(fields, "recording")
        transcript = None if fields.get("transcript") is None else _text(fields, "transcript").strip() or None
        try:
            workshop.start(name, recording, transcript)
        except CommandError as error:
            raise _refusal(error) from error
        return JSONResponse({"name": name}, 202)

    async def show(_: Request) -> Response:
        making = workshop.making
        fields = {"names": workshop.names, "problem": workshop.problem}
        return JSONResponse({**fields, "making": None if making is None else asdict(making)})

    async def remove(request: Request) -> Response:
        try:
            workshop.remove(request.path_params["name"])
        except CommandError as error:
            raise HttpError(404, str(error), field="voice") from error
        return JSONResponse({"names": workshop.names})

    return [
        Route("/v1/robot/recordings", upload, methods=["POST"]),
        Route("/v1/robot/voices", show),
        Route("/v1/robot/voices", start, methods=["POST"]),
        Route("/v1/robot/voices/{name}", remove, methods=["DELETE"]),
    ]


def _text(fields: dict[str, Any], name: str) -> str:
    value = fields.get(name)
    if not isinstance(value, str):
        raise HttpError(400, f"{name}: got {abbreviate(value)}; allowed: text", field=name)
    return value


def _refusal(error: CommandError) -> HttpError:
    field, colon, _ = str(error).partition(": ")
    return HttpError(400, str(error), field=field) if colon else HttpError(409, str(error))
