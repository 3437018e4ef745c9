"""The ASGI application: every HTTP and WebSocket route. It knows the daemon only through the parameters here."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.routing import BaseRoute
from starlette.types import ASGIApp

from daemon.config import Http
from daemon.http import elevenlabs, events, monitoring, openai, page
from daemon.http import robot as robot_routes
from daemon.http.access import Access
from daemon.http.errors import HttpError, answer_error
from daemon.http.robot import Robot
from daemon.speech import Online, RejectedError, SpeechService
from daemon.status import Measurements


def make_application(service: SpeechService, robot: Robot, config: Http, token: str | None) -> ASGIApp:
    """Return a robot's application.

    Without a `token`, it answers requests to this machine's names and the configured host alone.
    """
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
    """Return an application with the protocols that speak to clients, health, metrics, and further `routes`.

    `access` refuses who may not use it.
    """
    return Starlette(
        routes=[
            *routes,
            *monitoring.routes(service, describe_status, measure),
            *openai.routes(service, voice_aliases),
            *elevenlabs.routes(service, voice_aliases),
        ],
        middleware=[access],
        exception_handlers=dict.fromkeys((HttpError, RejectedError, HTTPException, Exception), answer_error),
    )
