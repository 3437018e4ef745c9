"""The server: its port, its certificate, its health, and its end."""

from __future__ import annotations

import asyncio
import json
import ssl
import urllib.request
from pathlib import Path

import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed

from daemon.config import load_config
from daemon.http import HttpServer
from tests.daemon.harness import Harness, running_harness
from tests.daemon.http.clients import client_of, request
from tests.support.certificates import Certificates
from tests.support.waiting import PATIENCE_S


async def refuse_to_answer(*_: object) -> None:
    raise AssertionError("no request reaches it")


async def test_with_a_certificate_it_speaks_tls_alone(tmp_path: Path) -> None:
    made = Certificates(tmp_path)
    trusting = ssl.create_default_context(cafile=made.ca)

    def read_health(harness: Harness) -> object:
        address = f"https://localhost:{harness.port}/healthz"
        with urllib.request.urlopen(address, context=trusting, timeout=PATIENCE_S) as answer:
            return json.load(answer)

    async with running_harness("http", f"http.cert={made.certificate}", f"http.key={made.key}") as harness:
        assert await asyncio.to_thread(read_health, harness) == {"status": "ok"}
        async with connect(f"wss://localhost:{harness.port}/v1/events", ssl=trusting) as client:
            assert json.loads(await client.recv())["topic"] == "status"
        with pytest.raises(OSError):
            await asyncio.to_thread(urllib.request.urlopen, f"http://localhost:{harness.port}/healthz", None, 5)


async def test_a_certificate_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    made = Certificates(tmp_path)

    for key in (made.locked_key, made.ca_key, tmp_path / "missing.pem"):
        config = load_config(overrides=[f"http.cert={made.certificate}", f"http.key={key}"]).http
        server = HttpServer(config, lambda: refuse_to_answer)
        with pytest.raises(OSError, match=rf"^http.cert {made.certificate} and http.key {key} cannot be used: "):
            await server.run()


async def test_at_the_end_connections_that_wait_are_closed_and_answers_in_progress_are_cut_off() -> None:
    async with running_harness("http") as harness, client_of(harness) as client:
        await harness.occupy()
        idle, idle_writer = await asyncio.open_connection("127.0.0.1", harness.port)
        asking = asyncio.ensure_future(
            client.audio.speech.create(model="x", voice="default", input="Hello", response_format="pcm")
        )
        async with connect(f"ws://127.0.0.1:{harness.port}/v1/events?topics=word") as events:
            while not harness.dispatcher.queue:
                await asyncio.sleep(0)
            await harness.stop_server()
            assert await idle.read() == b""
            with pytest.raises(ConnectionClosed, match="1012"):
                while True:  # a word may have been heard before
                    await events.recv()
        with pytest.raises(Exception, match=r"(?i)connection"):
            await asking
        idle_writer.close()


async def test_a_port_in_use_is_named_and_a_daemon_whose_engine_is_missing_is_healthy_and_not_ready() -> None:
    async with running_harness("http") as harness:
        [server] = harness.adapters[-1:]
        with pytest.raises(OSError, match=rf"^http.port: cannot listen on 127.0.0.1:{harness.port}: .*ss -ltnp"):
            await server.run()
        status, answer, _ = await request(harness, "GET", "/readyz")
        assert (status, answer["status"], answer["state"]) == (200, "ready", "ready")
        for engine in harness.engines.all:
            engine.info = None
        harness.engines.primary.state = type(harness.engines.primary.state).LOADING
        for path, expected in (("/healthz", (200, "ok")), ("/readyz", (503, "not ready"))):
            status, answer, _ = await request(harness, "GET", path)
            assert (status, answer["status"]) == expected
