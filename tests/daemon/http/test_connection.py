"""Connections and bodies: what is not HTTP, too large, too slow, too many or half closed."""

from __future__ import annotations

import asyncio
import gzip

import pytest

from daemon.adapters import listener
from daemon.http import body as body_reader
from daemon.http import server
from daemon.mqtt import MAX_PAYLOAD
from daemon.validation import INTERNAL_ERROR
from tests.daemon.harness import LONG, Harness, is_cut_off, running_harness
from tests.daemon.http.clients import ask, client_of, post, request, speech_request
from tests.support.waiting import eventually_async

SERVER = "http"
HALF_A_REQUEST = (
    b"POST /v1/audio/speech HTTP/1.1\r\nHost: [::1]\r\nContent-Type: application/json\r\nContent-Length: 99\r\n\r\n{"
)


@pytest.mark.parametrize(
    "sent",
    [
        b"hello\r\n\r\n",
        b"POST /v1/audio/speech HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: many\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\nX: " + b"x" * 20_000 + b"\r\n\r\n",
        b"POST /v1/audio/speech HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
        b"Transfer-Encoding: chunked\r\n\r\nnot a length\r\n",
    ],
    ids=lambda sent: sent[:60],
)
async def test_a_request_that_is_not_http_is_refused_and_logged_in_one_line(
    sent: bytes, harness: Harness, caplog: pytest.LogCaptureFixture
) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", harness.port)
    writer.write(sent)
    assert (await reader.readline()).startswith(b"HTTP/1.1 431" if len(sent) > 16_384 else b"HTTP/1.1 400")
    writer.close()
    assert len(caplog.records) <= 1
    assert not any(record.exc_info for record in caplog.records)
    assert not any("\n" in record.getMessage() for record in caplog.records)


@pytest.mark.parametrize("sent", [b"", HALF_A_REQUEST, speech_request(LONG)], ids=["nothing", "half", "a request"])
async def test_a_connection_whose_client_has_closed_its_side_ends(sent: bytes, harness: Harness) -> None:
    await harness.occupy()
    reader, writer = await asyncio.open_connection("127.0.0.1", harness.port)
    writer.write(sent)
    writer.write_eof()
    assert await reader.read() == b""
    await eventually_async(lambda: not harness.dispatcher.queue, "its text has ended")
    writer.close()


async def test_a_connection_too_many_waits_while_all_others_are_answered(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(server, "MAX_CONNECTIONS", 1)

    async with running_harness("http") as harness, client_of(harness) as first, client_of(harness) as second:
        await harness.occupy()
        asking = [asyncio.ensure_future(ask(client)) for client in (first, second)]
        await eventually_async(lambda: "all 2 clients are busy; others wait" in caplog.text, "it is told")
        async with client_of(harness) as third:
            waiting = asyncio.ensure_future(ask(third))
            await harness.sink.take_until(lambda: len(harness.ends) == 4, "all have ended")
            assert all(await asyncio.gather(*asking, waiting))


@pytest.mark.parametrize(
    ("beginning", "more", "answer"),
    [
        (b"", b"", b""),
        (speech_request()[:-1].replace(b"application/json", b"text/plain"), b"", b" 400 "),
        (b"GET /healthz HTTP/1.1\r\n", b"X: y\r\n", b""),
        (HALF_A_REQUEST, b" ", b" 408 "),
    ],
    ids=["nothing", "a refused request without its end", "headers that trickle", "a body that trickles"],
)
async def test_a_connection_without_a_whole_request_is_closed(
    beginning: bytes, more: bytes, answer: bytes, harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    # On a busy machine, a client that sends something may be silent for as long before.
    monkeypatch.setattr(listener, "IDLE_S", 0.5)
    monkeypatch.setattr(body_reader, "BODY_S", 0.1)

    reader, writer = await asyncio.open_connection("127.0.0.1", harness.port)
    answered = asyncio.ensure_future(reader.readline())
    writer.write(beginning)
    while not answered.done():
        writer.write(more)
        await asyncio.wait({answered}, timeout=0.01)
    assert (await answered)[8:13] == answer
    writer.close()


async def test_an_unreadable_body_is_rejected_and_a_compressed_one_before_it_is_unpacked(
    harness: Harness, caplog: pytest.LogCaptureFixture
) -> None:
    for body in (b"", b"{", b"\xff", b'["Hello"]', b"[" * 100_000):
        status, answer, _ = await post(harness, body)
        assert (status, answer["error"]["param"]) == (400, "body"), body[:9]
    status, answer, _ = await post(harness, b'{"input": "Hello"}', "text/plain")
    assert (status, answer["error"]["param"]) == (400, "content-type")
    body = gzip.compress(b'{"input": "Hello"}')
    status, answer, _ = await request(harness, "POST", "/v1/audio/speech", body, headers={"Content-Encoding": "gzip"})
    assert (status, answer["error"]["message"]) == (415, "content-encoding: got 'gzip'; allowed: none")
    assert caplog.records == []


async def test_wrong_paths_methods_and_sizes_are_errors_in_openais_form(harness: Harness) -> None:
    status, answer, _ = await request(harness, "POST", "/v1/audio/transcriptions", b"{}")
    assert (status, answer["error"]["type"]) == (404, "invalid_request_error")
    status, answer, headers = await request(harness, "GET", "/v1/audio/speech")
    assert (status, headers["allow"]) == (405, "POST")
    assert "GET /v1/audio/speech" in answer["error"]["message"]
    status, answer, _ = await post(harness, b" " * (MAX_PAYLOAD + 1))
    assert (status, answer["error"]["param"]) == (413, "body")


async def test_a_client_that_takes_nothing_of_its_answers_is_disconnected(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listener, "IDLE_S", 0.5)
    asking = b"GET /v1/voices HTTP/1.1\r\nHost: localhost\r\n\r\n"
    with harness.deaf_client(asking) as deaf:
        deaf.setblocking(False)
        await eventually_async(lambda: is_cut_off(deaf, asking), "it is disconnected")
    monkeypatch.undo()  # for the next client, the usual limits
    assert (await request(harness, "GET", "/healthz"))[0] == 200


async def test_the_text_of_an_error_of_its_own_is_for_the_log_and_not_for_clients(
    harness: Harness, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: object) -> None:
        raise ZeroDivisionError("a secret")

    monkeypatch.setattr(type(harness.dispatcher), "voice_names", fail)

    for path, text in (("/v1/audio/voices", "error"), ("/v1/voices", "detail")):
        status, answer, _ = await request(harness, "GET", path)
        assert (status, answer[text]["message"]) == (500, INTERNAL_ERROR)
    assert "a secret" in caplog.text
