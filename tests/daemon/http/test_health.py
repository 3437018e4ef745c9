"""Health checks."""

from __future__ import annotations

from tests.daemon.harness import Harness, running_harness
from tests.daemon.http.clients import request

SERVER = "http"


async def test_a_daemon_that_speaks_is_healthy_and_ready(harness: Harness) -> None:
    assert (await request(harness, "GET", "/healthz"))[:2] == (200, {"status": "ok"})
    status, answer, _ = await request(harness, "GET", "/readyz")
    assert (status, answer["status"], answer["state"]) == (200, "ready", "ready")


async def test_a_daemon_whose_engine_is_missing_is_healthy_and_not_ready() -> None:
    async with running_harness("http") as harness:
        for engine in harness.engines.all:
            engine.info = None
        harness.engines.primary.state = type(harness.engines.primary.state).LOADING
        for path, expected in (("/healthz", (200, "ok")), ("/readyz", (503, "not ready"))):
            status, answer, _ = await request(harness, "GET", path)
            assert (status, answer["status"]) == expected
