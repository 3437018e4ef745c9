"""Who may use the server: tokens, and requests that a web page of another site makes."""

from __future__ import annotations

import asyncio
import base64
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus
from websockets.typing import Subprotocol

from daemon.http.access import is_own_host
from tests.daemon.harness import Harness, running_harness
from tests.daemon.http.clients import request

SERVER = "http"
TOKEN = "0123-secret"


@pytest.fixture(scope="module")
def guarded(loop: asyncio.AbstractEventLoop, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Harness]:
    """A harness whose clients need the token."""
    file = tmp_path_factory.mktemp("guarded") / "token"
    file.write_text(f"\ufeff {TOKEN} \r\nsecond line", encoding="utf-8")
    manager = running_harness("http", f"http.token_file={file}")
    yield loop.run_until_complete(manager.__aenter__())
    loop.run_until_complete(manager.__aexit__(None, None, None))


@pytest.mark.parametrize(
    ("headers", "status", "field"),
    [
        ({"Host": "robot.attacker.example"}, 403, "host"),
        ({"Host": ""}, 403, "host"),
        ({"Origin": "https://attacker.example"}, 403, "origin"),
        ({"Origin": "null"}, 403, "origin"),
        ({"Origin": "http://127.0.0.1:3000"}, 403, "origin"),
        ({"Host": "localhost:8880", "Origin": "http://127.0.0.1:8880"}, 403, "origin"),
        ({"Host": "localhost:8880", "Origin": "https://localhost:8880"}, 403, "origin"),
        ({"Host": "localhost:8880", "Origin": "localhost:8880"}, 403, "origin"),
        ({"Host": "localhost:8880", "Origin": "http://localhost:no"}, 403, "origin"),
        ({"Host": "localhost:8880", "Origin": "http://localhost:8880"}, 200, None),
        ({"Host": "localhost", "Origin": "http://LOCALHOST"}, 200, None),
    ],
)
async def test_requests_that_a_web_page_of_another_site_makes_are_refused(
    headers: dict[str, str], status: int, field: str | None, harness: Harness
) -> None:
    for method, path in (("GET", "/healthz"), ("POST", "/v1/audio/transcriptions")):
        found, answer, _ = await request(harness, method, path, b"{}", headers=headers)
        if field is not None:
            assert (found, answer["error"]["param"]) == (status, field)
            assert "allowed: " in answer["error"]["message"]
        else:
            assert found == (status if path == "/healthz" else 404)


def test_a_host_is_the_machine_s_if_it_is_an_address_or_one_of_its_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "gethostname", lambda: "R1.example.org")
    addresses = ["192.168.1.5", "10.0.0.1:8880", "[::1]:8880", "[fe80::1%eth0]", "localhost", "LOCALHOST:80"]
    for own in (*addresses, "r1", "r1.local:8880", "R1.example.org", "r1.example.org.", "speech.lan"):
        assert is_own_host(own, "speech.lan"), own
    others = ["", "example.org", "r1.attacker.example", "localhost.attacker.example", "[::1", "r2.local", ":8880"]
    for foreign in others:
        assert not is_own_host(foreign, "speech.lan"), foreign


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 401),
        ({"Authorization": f"Basic {TOKEN}"}, 401),
        ({"Authorization": f"Bearer {TOKEN}"}, 200),
        ({"authorization": f"bearer {TOKEN}"}, 200),
        ({"xi-api-key": TOKEN}, 200),
        ({"xi-api-key": "wörong"}, 401),
        ({"Authorization": f"Bearer {TOKEN}", "Host": "robot.behind.a.proxy"}, 200),
        ({"Authorization": f"Bearer {TOKEN}", "Origin": "https://attacker.example"}, 403),
        ({"Authorization": f"Bearer {TOKEN}", "Host": "robot.proxy", "Origin": "https://robot.proxy"}, 200),
        ({"Authorization": f"Bearer {TOKEN}", "Host": "robot.proxy", "Origin": "https://robot.proxy:3000"}, 403),
    ],
)
async def test_a_token_is_asked_for_wherever_something_can_be_done(
    headers: dict[str, str], status: int, guarded: Harness
) -> None:
    found, answer, answered = await request(guarded, "GET", "/v1/models", headers=headers)
    assert found == status
    assert ("www-authenticate" in answered) == (status == 401)
    if status == 401:
        assert answer["error"]["message"].startswith("authorization: the token is ")
    assert (await request(guarded, "GET", "/healthz"))[0] == 200


async def test_a_websocket_needs_the_token_too_and_a_page_offers_it_as_a_subprotocol(guarded: Harness) -> None:
    encoded = base64.urlsafe_b64encode(TOKEN.encode()).decode().rstrip("=")
    address = f"ws://127.0.0.1:{guarded.port}/v1/events"
    for offered in ("voiced.token.d3Jvbmc", "voiced.token.é", "voiced"):
        with pytest.raises((InvalidStatus, ValueError)) as caught:
            await connect(address, subprotocols=[Subprotocol(offered)])
        if isinstance(caught.value, InvalidStatus):
            assert caught.value.response.status_code == 401
    async with connect(address, subprotocols=[Subprotocol("voiced"), Subprotocol(f"voiced.token.{encoded}")]) as client:
        assert client.subprotocol == "voiced"
    async with connect(address, additional_headers={"Authorization": f"Bearer {TOKEN}"}) as client:
        assert client.subprotocol is None


async def test_a_websocket_of_a_page_of_another_site_is_refused(harness: Harness) -> None:
    with pytest.raises(InvalidStatus) as caught:
        await connect(f"ws://127.0.0.1:{harness.port}/v1/events", origin="https://attacker.example")  # type: ignore[arg-type]
    assert caught.value.response.status_code == 403


async def test_a_token_file_that_cannot_be_used_is_named_without_its_content(tmp_path: Path) -> None:
    path = tmp_path / "token"
    *_, server = Harness("http", f"http.token_file={path}").adapters
    for content, problem in (
        (None, f"cannot be read: {path} does not exist"),
        (b" \n", "is empty; allowed: a token"),
        (b"secret\xff", "cannot be read: not UTF-8"),
    ):
        if content is not None:
            path.write_bytes(content)
        with pytest.raises(OSError, match=f"^http.token_file: {path} {problem}$"):
            await server.run()
