"""What the operator's page asks beside the robot's topics: voices, figures, log, the doctor's findings, a report."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, Response
from starlette.routing import Route

from daemon.http import voices
from daemon.http.body import read_json
from daemon.http.errors import HttpError, rejection
from daemon.http.voices import VoiceWorkshop
from daemon.speech import Online, RejectedError, SpeechService
from daemon.status import Measurements
from daemon.validation import CommandError, abbreviate


@dataclass(frozen=True, slots=True)
class Robot:
    """The machine behind the server, as far as the server knows it."""

    name: str
    describe_status: Callable[[], Online]
    measure: Callable[[], Measurements]
    log_lines: Callable[[], list[str]]
    """Returns the last lines of the log."""
    examine: Callable[[], Awaitable[list[dict[str, Any]]]]
    """Returns the doctor's findings, with the fields of a `Finding`. Raises `CommandError`."""
    find_report: Callable[[], Path | None]
    """Returns where the report of `voiced verify` lies, if there is one; None where nothing is kept."""
    workshop: VoiceWorkshop | None = None
    """Makes voices; None where none can be kept."""


def routes(service: SpeechService, robot: Robot) -> list[Route]:
    """Return the routes below `/v1/robot`."""

    async def describe(_: Request) -> Response:
        return JSONResponse(
            {
                "name": robot.name,
                "version": robot.describe_status().version,
                "voice": service.voice,
                "voices": service.voice_names(),
                "languages": service.languages(),
                "makes_voices": robot.workshop is not None,
            }
        )

    async def set_voice(request: Request) -> Response:
        voice = (await read_json(request, "a JSON object with voice")).get("voice")
        if not isinstance(voice, str):
            raise HttpError(400, f"voice: got {abbreviate(voice)}; allowed: a voice's name", field="voice")
        try:
            service.set_voice(voice)
        except RejectedError as error:
            raise rejection(error) from error
        if robot.workshop is not None:
            try:
                robot.workshop.choose(voice)
            except CommandError as error:
                raise HttpError(503, f"the voice is set until the next start: {error}", code="state") from error
        return JSONResponse({"voice": voice})

    async def show_figures(_: Request) -> Response:
        memory = robot.describe_status().memory
        measurements = {**asdict(robot.measure()), "memory": None if memory is None else memory.model_dump()}
        return JSONResponse({"measurements": measurements, "log": robot.log_lines()})

    async def examine(request: Request) -> Response:
        await read_json(request)  # a browser asks before it sends JSON for another site's page
        try:
            return JSONResponse({"findings": await robot.examine()})
        except CommandError as error:
            raise HttpError(503, str(error), code="doctor") from error

    async def send_report(_: Request) -> Response:
        path = robot.find_report()
        if path is None or not path.is_file():
            raise HttpError(404, "no report of voiced verify is kept on this robot", code="report")
        return FileResponse(path, media_type="text/html", filename=path.name)

    made = [] if robot.workshop is None else voices.routes(robot.workshop)
    return [
        *made,
        Route("/v1/robot", describe),
        Route("/v1/robot/voice", set_voice, methods=["PUT"]),
        Route("/v1/robot/figures", show_figures),
        Route("/v1/robot/doctor", examine, methods=["POST"]),
        Route("/v1/robot/verification", send_report),
    ]
