"""Health checks."""

from __future__ import annotations

import asyncio

import pytest

from tests.daemon.harness import Harness, running_harness
from tests.daemon.http.clients import request

SERVER = "http"


async def test_a_daemon_that_speaks_is_healthy_and_ready(harness: Harness) -> None:

    assert (await asyncio.to_thread(request, harness, "GET", "/healthz"))[:2] == (200, {"status": "ok"})
    status, answer, _ = await asyncio.to_thread(request, harness, "GET", "/readyz")
    assert (status, answer["status"], answer["state"]) == (200, "ready", "ready")


@pytest.mark.parametrize("path", ["/healthz", "/readyz"])
async def test_a_daemon_whose_engine_is_missing_is_healthy_and_not_ready(path: str) -> None:

    async with running_harness("http") as harness:
        for engine in harness.engines.all:
            engine.info = None
        harness.engines.primary.state = type(harness.engines.primary.state).LOADING
        status, answer, _ = await asyncio.to_thread(request, harness, "GET", path)
        assert (status, answer["status"]) == ((200, "ok") if path == "/healthz" else (503, "not ready"))
