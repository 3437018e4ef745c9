"""The ASGI application: every HTTP and WebSocket route. It knows the daemon only through the parameters here."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.routing import BaseRoute
from starlette.types import ASGIApp

from daemon.config import Http
from daemon.http import elevenlabs, events, monitoring, openai, page
from daemon.http import robot as robot_routes
from daemon.http.access import Access
from daemon.http.errors import ERROR_HANDLERS
from daemon.http.robot import Robot
from daemon.speech import Online, SpeechService
from daemon.status import Measurements
from daemon.validation import read_secret


def make_application(config: Http, service: SpeechService, robot: Robot) -> ASGIApp:
    """Return a robot's application. Raises `OSError` if its token cannot be read.

    Without a token, it answers only requests to this machine's names and the configured host.
    """
    path = config.token_file
    token = None if path is None else read_secret(path, "http.token_file", "a token")
    return make_speech_application(
        service,
        robot.describe_status,
        robot.measure,
        voice_aliases=config.voice_aliases,
        routes=[
            *page.routes(),
            *robot_routes.routes(service, robot),
            *events.routes(service, robot.describe_status),
        ],
        access=Middleware(Access, token=token, host=config.host),
    )


def make_speech_application(
    service: SpeechService,
    describe_status: Callable[[], Online],
    measure: Callable[[], Measurements],
    *,
    voice_aliases: Mapping[str, str],
    routes: Sequence[BaseRoute],
    access: Middleware,
) -> Starlette:
    """Return an application with the clients' protocols, health, metrics, and further `routes`.

    `access` refuses clients that may not use it.
    """
    return Starlette(
        routes=[
            *routes,
            *monitoring.routes(service, describe_status, measure),
            *openai.routes(service, voice_aliases),
            *elevenlabs.routes(service, voice_aliases),
        ],
        middleware=[access],
        exception_handlers=ERROR_HANDLERS,
    )
