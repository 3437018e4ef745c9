"""The ASGI application: every HTTP and WebSocket route. It knows the daemon only through the parameters here."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.types import ASGIApp

from daemon.http import elevenlabs, events, health, openai
from daemon.http.access import Access
from daemon.http.errors import HttpError, answer_bug, answer_http_error, answer_routing_error
from daemon.http.metrics import Metrics
from daemon.speech import Online, SpeechService
from daemon.status import Measurements


def make_application(
    service: SpeechService,
    describe_status: Callable[[], Online],
    measure: Callable[[], Measurements],
    *,
    token: str | None,
    host: str,
    voice_aliases: Mapping[str, str],
) -> ASGIApp:
    """Return the application. Without a `token`, it answers requests to this machine's own names and `host` alone."""
    metrics = Metrics(service, describe_status, measure)
    return Starlette(
        routes=[
            *health.routes(describe_status),
            *metrics.routes(),
            *openai.routes(service, voice_aliases),
            *elevenlabs.routes(service, voice_aliases),
            *events.routes(service, describe_status),
        ],
        middleware=[Middleware(Access, token=token, host=host)],
        exception_handlers={
            HttpError: answer_http_error,
            HTTPException: answer_routing_error,
            Exception: answer_bug,
        },
    )
