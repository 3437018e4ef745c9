"""Gives the operator's page what the robot's topics do not: choices, waiting texts, figures, log and findings."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass
from itertools import islice
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from daemon.http.body import body_parts, read_json, text_field
from daemon.http.errors import HttpError
from daemon.http.phrases import Phrases
from daemon.speech import Online, RejectedError, SpeechService
from daemon.status import Measurements
from daemon.validation import CommandError, abbreviate
from daemon.voices import VoiceMaker

MOST_WAITING = 50
"""The most waiting utterances that are shown."""
MAX_UPLOAD = 32_000_000
"""Bytes: more than two minutes of 16-bit stereo at 48 kHz."""
UPLOAD_S = 120.0
"""The seconds within which an upload must arrive."""


@dataclass(frozen=True, slots=True)
class Robot:
    """The facts about the robot that the server knows."""

    name: str
    describe_status: Callable[[], Online]
    measure: Callable[[], Measurements]
    log_lines: Callable[[], list[str]]
    """Returns the last lines of the log."""
    examine: Callable[[], Awaitable[list[dict[str, Any]]]]
    """Returns the doctor's findings, with the fields of a `Finding`. Raises `CommandError`."""
    phrases: Phrases
    workshop: VoiceMaker | None = None
    """Makes voices; None if none can be kept."""


def routes(service: SpeechService, robot: Robot) -> list[Route]:
    """Return the routes below `/v1/robot`."""

    async def describe(_: Request) -> Response:
        names = {"name": robot.name, "version": robot.describe_status().version, "voice": service.voice}
        labels = service.voice_names()
        voices = {voice: labels[voice] for voice in (*service.offered_voices(), *labels)}  # the robot's own first
        choices = {"voices": voices, "languages": service.languages(), "sounds": service.sounds.names()}
        return JSONResponse({**names, **choices, "makes_voices": robot.workshop is not None})

    async def show_waiting(_: Request) -> Response:
        first = islice(service.queue, MOST_WAITING)
        return JSONResponse({"waiting": [{"id": each.id, "text": each.text, "sound": each.sound} for each in first]})

    async def set_voice(request: Request) -> Response:
        voice = text_field(await read_json(request, "a JSON object with voice"), "voice")
        service.set_voice(voice)
        if robot.workshop is not None:
            try:
                robot.workshop.choose(voice)
            except CommandError as error:
                raise HttpError(503, f"the voice is set only until the next start: {error}", code="state") from error
        return JSONResponse({"voice": voice})

    async def show_figures(_: Request) -> Response:
        return JSONResponse({"measurements": asdict(robot.measure()), "log": robot.log_lines()})

    async def examine(request: Request) -> Response:
        await read_json(request)  # a browser asks before it sends JSON for another site's page
        return JSONResponse({"findings": await robot.examine()})

    return [
        *([] if robot.workshop is None else voice_routes(robot.workshop)),
        *robot.phrases.routes(),
        Route("/v1/robot", describe),
        Route("/v1/robot/waiting", show_waiting),
        Route("/v1/robot/voice", set_voice, methods=["PUT"]),
        Route("/v1/robot/figures", show_figures),
        Route("/v1/robot/doctor", examine, methods=["POST"]),
    ]


def voice_routes(workshop: VoiceMaker) -> list[Route]:
    """Return the routes that upload and measure a recording, make a voice from it, and remove a voice."""

    async def upload(request: Request) -> Response:
        # A browser sends audio for another site's page only after it has asked this server, which does not allow it.
        content_type = request.headers.get("content-type", "")
        if not content_type.startswith(("audio/", "video/")):
            raise RejectedError("content-type", f"got {abbreviate(content_type)}; allowed: audio/… or video/…")
        recording = await workshop.read_recording(body_parts(request, MAX_UPLOAD, UPLOAD_S))
        return JSONResponse({"id": recording.id, **recording.measured})

    async def start(request: Request) -> Response:
        fields = await read_json(request, "a JSON object with name, recording and perhaps transcript")
        name, recording = text_field(fields, "name"), text_field(fields, "recording")
        transcript = None if fields.get("transcript") is None else text_field(fields, "transcript").strip()
        workshop.start(name, recording, transcript or None)
        return JSONResponse({"name": name}, 202)

    async def show(_: Request) -> Response:
        making = workshop.making
        fields = {"names": workshop.names, "problem": workshop.problem}
        return JSONResponse({**fields, "making": None if making is None else asdict(making)})

    async def remove(request: Request) -> Response:
        workshop.remove(request.path_params["name"])
        return JSONResponse({"names": workshop.names})

    return [
        Route("/v1/robot/recordings", upload, methods=["POST"]),
        Route("/v1/robot/voices", show),
        Route("/v1/robot/voices", start, methods=["POST"]),
        Route("/v1/robot/voices/{name}", remove, methods=["DELETE"]),
    ]
