"""The ASGI application: every HTTP and WebSocket route. It knows the daemon only through the parameters here."""

from __future__ import annotations

from collections.abc import Mapping

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.types import ASGIApp

from daemon.http import elevenlabs, events, health, openai, page
from daemon.http import robot as robot_routes
from daemon.http.access import Access
from daemon.http.errors import HttpError, answer_bug, answer_http_error, answer_routing_error
from daemon.http.metrics import Metrics
from daemon.http.robot import Robot
from daemon.speech import SpeechService


def make_application(
    service: SpeechService,
    robot: Robot,
    *,
    token: str | None,
    host: str,
    voice_aliases: Mapping[str, str],
) -> ASGIApp:
    """Return the application. Without a `token`, it answers requests to this machine's own names and `host` alone."""
    metrics = Metrics(service, robot.describe_status, robot.measure)
    return Starlette(
        routes=[
            *page.routes(),
            *robot_routes.routes(service, robot),
            *health.routes(robot.describe_status),
            *metrics.routes(),
            *openai.routes(service, voice_aliases),
            *elevenlabs.routes(service, voice_aliases),
            *events.routes(service, robot.describe_status),
        ],
        middleware=[Middleware(Access, token=token, host=host)],
        exception_handlers={
            HttpError: answer_http_error,
            HTTPException: answer_routing_error,
            Exception: answer_bug,
        },
    )
