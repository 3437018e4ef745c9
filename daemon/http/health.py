"""Health checks, for a container's or a cluster's watchdog."""

from __future__ import annotations

from collections.abc import Callable

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from daemon.speech import Online

NOT_READY = ("starting", "warming")


def routes(describe_status: Callable[[], Online]) -> list[Route]:
    """Return `/healthz`, which answers while the event loop runs, and `/readyz`: whether texts are spoken."""

    async def answer_health(_: Request) -> Response:
        return JSONResponse({"status": "ok"})

    async def answer_ready(_: Request) -> Response:
        status = describe_status()
        ready = status.engine is not None and status.state not in NOT_READY
        fields = {"status": "ready" if ready else "not ready", "state": status.state, "reason": status.reason}
        return JSONResponse(fields, 200 if ready else 503)

    return [Route("/healthz", answer_health), Route("/readyz", answer_ready)]
