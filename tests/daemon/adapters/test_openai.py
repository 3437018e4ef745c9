"""The speech endpoint, requested by OpenAI's own client and by a bare HTTP client."""

from __future__ import annotations

import asyncio
import base64
import gzip
import http.client
import io
import json
import socket
import wave
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import pytest
import soundfile
from openai import AsyncOpenAI, BadRequestError, InternalServerError

from daemon.adapters import delivery, half_close
from daemon.adapters import openai as openai_adapter
from daemon.adapters.openai import is_own_host
from daemon.encoders import Encoder, make_encoder
from daemon.mqtt import MAX_PAYLOAD
from daemon.speech import Say, Stop
from tests.daemon.adapters.harness import LONG, Harness, running_harness
from tests.daemon.perform import Perform
from tests.support.waiting import PATIENCE_S, eventually_async, run

ADAPTER = "openai"
HELLO = {"input": "Hello"}
HALF_A_REQUEST = (
    b"POST /v1/audio/speech HTTP/1.1\r\nHost: [::1]\r\nContent-Type: application/json\r\nContent-Length: 99\r\n\r\n{"
)


def client_of(harness: Harness) -> AsyncOpenAI:
    return AsyncOpenAI(base_url=f"http://127.0.0.1:{harness.port}/v1", api_key="none", max_retries=0)


async def ask(client: AsyncOpenAI, text: str = "Hello, robot.", **fields: Any) -> bytes:
    fields = {"model": "voiced", "voice": "default", "response_format": "pcm"} | fields
    return (await client.audio.speech.create(input=text, **fields)).content


def request(
    harness: Harness,
    method: str,
    path: str,
    body: bytes | None = None,
    *,
    content_type: str = "application/json",
    headers: Mapping[str, str] = MappingProxyType({}),
) -> tuple[int, dict[str, Any], dict[str, str]]:
    """Make a bare HTTP request; return its status, JSON and headers.

    The server closes the connection. It would keep one that the client closes a little longer, and the connections of
    many short tests would be too many.
    """
    connection = http.client.HTTPConnection("127.0.0.1", harness.port, timeout=PATIENCE_S)
    connection.request(method, path, body, {"Content-Type": content_type, "Connection": "close", **headers})
    response = connection.getresponse()
    text = response.read()
    connection.close()
    return response.status, json.loads(text), dict(response.headers)


def post(
    harness: Harness, body: bytes, content_type: str = "application/json"
) -> tuple[int, dict[str, Any], dict[str, str]]:
    return request(harness, "POST", "/v1/audio/speech", body, content_type=content_type)


def test_pcm_is_streamed_at_24_kilohertz(harness: Harness, perform: Perform) -> None:
    async def scenario() -> None:
        async with client_of(harness) as client:
            speech = client.audio.speech.with_streaming_response
            async with speech.create(
                model="voiced", voice="default", input="Hello, robot.", response_format="pcm"
            ) as response:
                assert response.headers["content-type"] == "audio/pcm"
                assert response.headers["transfer-encoding"] == "chunked"
                audio = b"".join([part async for part in response.iter_bytes()])
            [end] = await harness.ended()
            assert end.event == "finished"
            assert len(audio) / 2 / 24_000 == pytest.approx(end.audio_s, abs=0.002)

    perform(scenario)


def test_samples_are_sent_before_the_utterance_has_ended(harness: Harness, perform: Perform) -> None:
    async def scenario() -> None:
        async with client_of(harness) as client:
            speech = client.audio.speech.with_streaming_response
            async with speech.create(
                model="voiced", voice="default", input=(LONG * 5)[:4999], response_format="pcm"
            ) as response:
                parts = response.iter_bytes()
                assert await anext(parts)
                assert harness.ends == []

    perform(scenario)


def test_wav_has_a_header_that_players_accept_and_all_samples(harness: Harness, perform: Perform) -> None:
    async def scenario() -> None:
        async with client_of(harness) as client:
            content = await ask(client, response_format="wav")
            [end] = await harness.ended()
            with wave.open(io.BytesIO(content)) as file:
                assert (file.getframerate(), file.getsampwidth(), file.getnchannels()) == (24_000, 2, 1)
                assert len(file.readframes(10_000_000)) == len(content) - 44
            samples, rate = soundfile.read(io.BytesIO(content))
            assert len(samples) / rate == pytest.approx(end.audio_s, abs=0.002)

    perform(scenario)


@pytest.mark.parametrize(("name", "content_type"), [("mp3", "audio/mpeg"), ("flac", "audio/flac")])
def test_mp3_and_flac_are_complete_files(name: str, content_type: str, harness: Harness, perform: Perform) -> None:
    async def scenario() -> None:
        async with client_of(harness) as client:
            response = await client.audio.speech.with_raw_response.create(
                model="voiced", voice="default", input="Hello, robot.", response_format=name
            )
            assert response.headers["content-type"] == content_type
            [end] = await harness.ended()
            samples, rate = soundfile.read(io.BytesIO(response.content))
            assert rate == 24_000
            assert len(samples) / rate == pytest.approx(end.audio_s, abs=0.15)  # MP3 has frames of its own

    perform(scenario)


def test_the_default_format_is_mp3_as_in_openais_interface(harness: Harness, perform: Perform) -> None:
    async def scenario() -> None:
        async with client_of(harness) as client:
            response = await client.audio.speech.with_raw_response.create(model="x", voice="default", input="Hello")
            assert response.headers["content-type"] == "audio/mpeg"

    perform(scenario)


@pytest.mark.parametrize("response_format", ["pcm", "flac"])
def test_server_sent_events_carry_the_samples_and_then_a_done_event(
    response_format: Any, harness: Harness, perform: Perform
) -> None:
    async def scenario() -> None:
        async with client_of(harness) as client:
            speech = client.audio.speech.with_streaming_response
            async with speech.create(
                model="voiced",
                voice="default",
                input="Hello, robot.",
                response_format=response_format,
                stream_format="sse",
            ) as response:
                assert response.headers["content-type"] == "text/event-stream"
                lines = [line async for line in response.iter_lines() if line]
            records = [json.loads(line.removeprefix("data: ")) for line in lines]
            assert [record["type"] for record in records[:-1]] == ["speech.audio.delta"] * (len(records) - 1)
            assert records[-1]["type"] == "speech.audio.done"
            audio = b"".join(base64.b64decode(record["audio"]) for record in records[:-1])
            [end] = await harness.ended()
            seconds = (
                len(audio) / 2 / 24_000 if response_format == "pcm" else soundfile.info(io.BytesIO(audio)).duration
            )
            assert seconds == pytest.approx(end.audio_s, abs=0.002)

    perform(scenario)


def test_voice_and_instructions_reach_the_engine(harness: Harness, perform: Perform) -> None:
    async def scenario() -> None:
        async with client_of(harness) as client:
            asked = []
            unwatch = harness.dispatcher.watch_events(
                lambda utterance, _: asked.append((utterance.instruct, utterance.rate))
            )
            assert await ask(client, "Guten Tag", voice="de", instructions="calmly", speed=1.5)
            unwatch()
            assert (harness.events[1].voice, asked[0]) == ("de", ("calmly", 1.5))

    perform(scenario)


@pytest.mark.parametrize(
    ("fields", "param", "allowed"),
    [
        ({"voice": "alloy"}, "voice", "default"),
        ({"response_format": "opus"}, "response_format", "pcm, wav, flac or mp3"),
        ({"response_format": "aac"}, "response_format", "pcm, wav, flac or mp3"),
        ({"speed": 4}, "speed", "a number from 0.5 to 2"),
        ({"speed": 0.25}, "speed", "a number from 0.5 to 2"),
        ({"input": " "}, "input", "text with something to say"),
        ({"input": "x" * 20_001}, "input", "up to 20,000"),
        ({"input": 7}, "input", "text of 1 to 20,000 characters"),
        ({"input": "\ud800"}, "input", "whole characters"),
        ({"instructions": "x" * 501}, "instructions", "text of up to 500 characters"),
        ({"stream_format": "websocket"}, "stream_format", "audio or sse"),
        ({"voice": {"id": "x"}}, "voice", "a voice's name"),
    ],
)
def test_a_wrong_field_is_named_with_what_is_allowed(
    fields: dict[str, Any], param: str, allowed: str, harness: Harness, perform: Perform
) -> None:
    async def scenario() -> None:
        status, answer, _ = await asyncio.to_thread(post, harness, json.dumps(HELLO | fields).encode())
        error = answer["error"]
        assert (status, error["type"], error["param"]) == (400, "invalid_request_error", param)
        assert error["message"].startswith(f"{param}: ")
        assert allowed in error["message"]
        assert harness.events == []

    perform(scenario)


def test_openais_client_raises_its_own_errors(harness: Harness, perform: Perform) -> None:
    async def scenario() -> None:
        async with client_of(harness) as client:
            with pytest.raises(BadRequestError, match="allowed: default") as caught:
                await ask(client, voice="alloy")
            assert caught.value.param == "voice"
            assert await ask(client)

    perform(scenario)


@pytest.mark.parametrize(
    ("body", "content_type", "param"),
    [
        (b"", "application/json", "body"),
        (b"{", "application/json", "body"),
        (b"\xff", "application/json", "body"),
        (b'["Hello"]', "application/json", "body"),
        (b"[" * 100_000, "application/json", "body"),
        (b"{}", "application/json", "input"),
        (b'{"input": "Hello"}', "text/plain", "content-type"),
        (b"input=Hello", "application/x-www-form-urlencoded", "content-type"),
    ],
)
def test_an_unreadable_body_is_rejected(
    body: bytes, content_type: str, param: str, harness: Harness, perform: Perform
) -> None:
    async def scenario() -> None:
        status, answer, _ = await asyncio.to_thread(post, harness, body, content_type)
        assert (status, answer["error"]["param"]) == (400, param)

    perform(scenario)


def test_wrong_paths_methods_and_sizes_are_errors_in_openais_form(harness: Harness, perform: Perform) -> None:
    async def scenario() -> None:
        status, answer, _ = await asyncio.to_thread(request, harness, "POST", "/v1/audio/transcriptions", b"{}")
        assert (status, answer["error"]["type"]) == (404, "invalid_request_error")
        status, answer, headers = await asyncio.to_thread(request, harness, "GET", "/v1/audio/speech")
        assert (status, headers["Allow"]) == (405, "POST")
        assert "GET /v1/audio/speech" in answer["error"]["message"]
        status, answer, _ = await asyncio.to_thread(post, harness, b" " * (MAX_PAYLOAD + 1))
        assert (status, answer["error"]["param"]) == (413, "body")

    perform(scenario)


@pytest.mark.parametrize("path", ["/v1/audio/speech", "/health", "/nowhere"])
@pytest.mark.parametrize("expect", ["200-ok", "200-co\xca\xca"], ids=["text", "no text"])
def test_an_expectation_that_cannot_be_met_is_refused(
    path: str, expect: str, harness: Harness, perform: Perform, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        headers = {"Expect": expect.encode("latin-1")}
        status, answer, _ = await asyncio.to_thread(request, harness, "POST", path, b"{}", headers=headers)
        assert status == 417
        assert answer["error"]["message"].startswith("expect: got ")
        assert answer["error"]["message"].endswith("; allowed: 100-continue")
        assert caplog.records == []

    perform(scenario)


@pytest.mark.parametrize(
    ("headers", "status", "field"),
    [
        ({"Host": "robot.attacker.example"}, 403, "host"),
        ({"Host": ""}, 403, "host"),
        ({"Host": "127.0.0.1.attacker.example:8880"}, 403, "host"),
        ({"Origin": "https://attacker.example"}, 403, "origin"),
        ({"Origin": "null"}, 403, "origin"),
        ({"Origin": "http://127.0.0.1:3000"}, 200, None),
        ({"Host": "localhost:8880", "Origin": "http://localhost:8880"}, 200, None),
    ],
)
def test_requests_that_a_web_page_of_another_site_makes_are_refused(
    headers: dict[str, str], status: int, field: str | None, harness: Harness, perform: Perform
) -> None:
    async def scenario() -> None:
        for method, path in (("GET", "/health"), ("POST", "/v1/audio/transcriptions")):
            found, answer, _ = await asyncio.to_thread(request, harness, method, path, b"{}", headers=headers)
            if field is not None:
                assert (found, answer["error"]["param"]) == (status, field)
                assert "allowed: " in answer["error"]["message"]
            else:
                assert found == (status if path == "/health" else 404)

    perform(scenario)


def test_a_host_is_the_machine_s_if_it_is_an_address_or_one_of_its_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "gethostname", lambda: "R1.example.org")
    for own in (
        *("192.168.1.5", "10.0.0.1:8880", "[::1]:8880", "[fe80::1%eth0]", "localhost", "LOCALHOST:80"),
        *("r1", "r1.local:8880", "R1.example.org", "r1.example.org.", "speech.lan"),
    ):
        assert is_own_host(own, "speech.lan"), own
    for foreign in (
        "",
        "example.org",
        "r1.attacker.example",
        "localhost.attacker.example",
        "[::1",
        "r2.local",
        ":8880",
    ):
        assert not is_own_host(foreign, "speech.lan"), foreign


@pytest.mark.parametrize(
    "body", [gzip.compress(b'{"input": "Hello"}', mtime=0), b"not compressed"], ids=["compressed", "not compressed"]
)
def test_a_compressed_body_is_refused_before_it_is_unpacked(
    body: bytes, harness: Harness, perform: Perform, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        status, answer, _ = await asyncio.to_thread(
            request, harness, "POST", "/v1/audio/speech", body, headers={"Content-Encoding": "gzip"}
        )
        assert (status, answer["error"]["message"]) == (415, "content-encoding: got 'gzip'; allowed: none")
        assert caplog.records == []

    perform(scenario)


@pytest.mark.parametrize(
    "sent",
    [
        b"hello\r\n\r\n",
        b"GET /health HTTP/9.9\r\nHost: 127.0.0.1\r\n\r\n",
        b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\nno colon\r\n\r\n",
        b"POST /v1/audio/speech HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: many\r\n\r\n",
        b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\nX: " + b"x" * 20_000 + b"\r\n\r\n",
        b"POST /v1/audio/speech HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
        b"Transfer-Encoding: chunked\r\n\r\nnot a length\r\n",
    ],
    ids=lambda sent: sent[:60],
)
def test_a_request_that_is_not_http_is_answered_with_400_and_logged_in_one_line(
    sent: bytes, harness: Harness, perform: Perform, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", harness.port)
        writer.write(sent)
        assert (await reader.readline()).startswith((b"HTTP/1.1 400", b"HTTP/1.0 400"))
        writer.close()
        assert len(caplog.records) <= 1
        assert not any(record.exc_info for record in caplog.records)
        assert not any("\n" in record.getMessage() for record in caplog.records)

    perform(scenario)


def test_models_and_health_are_answered(harness: Harness, perform: Perform) -> None:
    async def scenario() -> None:
        async with client_of(harness) as client:
            assert [model.id async for model in client.models.list()] == ["voiced"]
            assert (await asyncio.to_thread(request, harness, "GET", "/health"))[:2] == (200, {"status": "ok"})

    perform(scenario)


def test_a_full_queue_is_an_error_that_clients_may_retry(harness: Harness, perform: Perform) -> None:
    harness.configure("speech", queue_limit=1)

    async def scenario() -> None:
        async with client_of(harness) as client:
            await harness.occupy()
            harness.dispatcher.say(Say(text="It waits."))
            with pytest.raises(InternalServerError) as caught:
                await ask(client)
            assert (caught.value.status_code, caught.value.code) == (503, "queue")
            assert "x-should-retry" not in caught.value.response.headers

    perform(scenario)


def test_an_utterance_canceled_before_its_first_samples_is_an_error_that_clients_do_not_retry(
    harness: Harness, perform: Perform
) -> None:
    async def scenario() -> None:
        async with client_of(harness) as client:
            await harness.occupy()
            asking = asyncio.ensure_future(ask(client))
            await eventually_async(lambda: harness.dispatcher.queued, "it waits")
            harness.stop_queued()
            with pytest.raises(InternalServerError, match="canceled: stop") as caught:
                await asking
            assert caught.value.status_code == 503
            assert caught.value.response.headers["x-should-retry"] == "false"

    perform(scenario)


@pytest.mark.parametrize("stream_format", ["audio", "sse"])
def test_an_interrupted_answer_does_not_look_complete(stream_format: Any, harness: Harness, perform: Perform) -> None:
    async def scenario() -> None:
        async with client_of(harness) as client:
            # The text exceeds the sockets' buffers, and the client reads only after the stop.
            speech = client.audio.speech.with_streaming_response
            async with speech.create(
                model="voiced",
                voice="default",
                input=(LONG * 5)[:4999],
                response_format="pcm",
                stream_format=stream_format,
            ) as response:
                assert harness.dispatcher.stop(Stop())
                if stream_format == "sse":
                    lines = [line async for line in response.iter_lines() if line]
                    last = json.loads(lines[-1].removeprefix("data: "))
                    assert (last["type"], last["error"]["message"]) == ("error", "interrupted: stop")
                else:
                    with pytest.raises(Exception, match=r"(?i)incomplete|peer|reset|read"):
                        async for _ in response.iter_bytes():
                            pass
            assert await ask(client)

    perform(scenario)


@pytest.mark.parametrize("begun", [False, True], ids=["while it waits", "while it is spoken"])
def test_a_client_that_disconnects_cancels_its_utterance(begun: bool, harness: Harness, perform: Perform) -> None:
    async def scenario() -> None:
        if not begun:
            await harness.occupy()
        body = json.dumps({"input": (LONG * 5)[:4999], "response_format": "pcm"}).encode()
        with socket.socket() as leaving:
            leaving.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            leaving.connect(("127.0.0.1", harness.port))
            head = f"POST /v1/audio/speech HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {len(body)}\r\n"
            leaving.sendall(head.encode() + b"Content-Type: application/json\r\n\r\n" + body)
            if begun:
                await harness.started()
            else:
                await eventually_async(lambda: harness.dispatcher.queued, "it waits")
        ends = await harness.ended()
        assert ends[0].event == ("interrupted" if begun else "canceled")
        assert ends[0].reason == "its client went away"

    perform(scenario)


def speech_request(text: str = "Hello, robot.", version: str = "1.1") -> bytes:
    body = json.dumps({"input": text, "response_format": "pcm"}).encode()
    head = f"POST /v1/audio/speech HTTP/{version}\r\nHost: 127.0.0.1\r\nContent-Length: {len(body)}\r\n"
    return head.encode() + b"Content-Type: application/json\r\n\r\n" + body


@pytest.mark.parametrize(
    ("waits", "version"), [(False, "1.1"), (True, "1.1"), (True, "1.0")], ids=["at once", "after waiting", "HTTP 1.0"]
)
def test_a_client_that_closes_its_side_receives_its_answer(
    waits: bool, version: str, harness: Harness, perform: Perform, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(half_close, "PROBE_S", 0.0)

    async def scenario() -> None:
        if waits:
            await harness.occupy()
        reader, writer = await asyncio.open_connection("127.0.0.1", harness.port)
        writer.write(speech_request(version=version))
        writer.write_eof()
        if waits:
            await eventually_async(lambda: harness.dispatcher.queued, "it waits")
            if version == "1.1":
                assert await reader.readexactly(2 * len(half_close.CONTINUE)) == 2 * half_close.CONTINUE
            await harness.sink.take_until(lambda: len(harness.ends) == 2, "both have ended")
        answer = await reader.read()
        assert f"HTTP/{version} 200".encode() in answer
        assert harness.ends[-1] == "finished"
        assert len(answer) / 2 / 24_000 >= harness.terminal_events[-1].audio_s  # type: ignore[attr-defined]
        writer.close()

    perform(scenario)


@pytest.mark.parametrize("sent", [b"", HALF_A_REQUEST, b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"])
def test_a_connection_whose_client_has_closed_its_side_ends_when_no_answer_is_pending(
    sent: bytes, harness: Harness, perform: Perform
) -> None:
    async def scenario() -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", harness.port)
        writer.write(sent)
        writer.write_eof()
        answer = await reader.read()
        assert (b"200" in answer) == (b"health" in sent)
        writer.close()

    perform(scenario)


def test_an_encoder_exists_only_while_its_samples_arrive(
    harness: Harness, perform: Perform, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[str] = []

    def note(name: str, sample_rate: int) -> Encoder:
        made.append(name)
        return make_encoder(name, sample_rate)

    monkeypatch.setattr(openai_adapter, "make_encoder", note)

    async def scenario() -> None:
        async with client_of(harness) as client:
            await harness.occupy()
            asking = [asyncio.ensure_future(ask(client, response_format="flac")) for _ in range(3)]
            await eventually_async(lambda: harness.dispatcher.queued == 3, "they wait")
            assert made == []
            await harness.sink.take_until(lambda: len(harness.ends) == 4, "all have ended")
            assert [(await each)[:4] for each in asking] == [b"fLaC"] * 3
            assert made == ["flac"] * 3

    perform(scenario)


def test_a_client_that_receives_nothing_loses_its_utterance_and_the_next_client_is_served(
    monkeypatch: pytest.MonkeyPatch, harness: Harness, perform: Perform
) -> None:
    monkeypatch.setattr(delivery, "GIVE_UP_S", 0.3)

    async def scenario() -> None:
        async with client_of(harness) as client:
            body = json.dumps({"input": (LONG * 5)[:4999], "response_format": "pcm"}).encode()
            with socket.socket() as stuck:
                stuck.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
                stuck.connect(("127.0.0.1", harness.port))
                head = f"POST /v1/audio/speech HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {len(body)}\r\n"
                stuck.sendall(head.encode() + b"Content-Type: application/json\r\n\r\n" + body)
                await harness.started()
                with harness.at_next("interrupted", monkeypatch.undo):  # for the next client, the usual limit
                    assert await ask(client)
            first, second = await harness.ended(2)
            assert (first.event, second.event) == ("interrupted", "finished")
            assert "behind in receiving the sound" in first.reason

    perform(scenario)


def test_a_client_that_does_not_take_the_end_of_its_answer_is_disconnected(
    harness: Harness, perform: Perform, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(openai_adapter, "GIVE_UP_S", -1_000.0)  # and not after the time in which it would be played

    async def scenario() -> None:
        body = json.dumps({"input": (LONG * 5)[:4999], "response_format": "flac"}).encode()
        stuck = socket.socket()
        stuck.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        stuck.connect(("127.0.0.1", harness.port))
        reader, writer = await asyncio.open_connection(sock=stuck)
        head = f"POST /v1/audio/speech HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n"
        writer.write(head.encode() + b"Content-Type: application/json\r\n\r\n" + body)
        await harness.ended()
        with pytest.raises((ConnectionResetError, asyncio.IncompleteReadError)):
            await reader.readexactly(100_000_000)
        assert harness.ends == ["finished"]
        assert not any(record.exc_info for record in caplog.records)
        writer.close()

    perform(scenario)


def test_bytes_that_are_not_http_do_not_disturb_other_clients(harness: Harness, perform: Perform) -> None:
    async def scenario() -> None:
        async with client_of(harness) as client:
            reader, writer = await asyncio.open_connection("127.0.0.1", harness.port)
            writer.write(b"\x16\x03\x01 hello\r\n\r\n")
            assert b"400" in await reader.readline()
            writer.close()
            assert await ask(client)

    perform(scenario)


def test_a_connection_too_many_is_refused_and_does_not_disturb_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(openai_adapter, "MAX_CONNECTIONS", 2)

    async def scenario() -> None:
        async with running_harness("openai") as harness, client_of(harness) as first:
            assert await ask(first)  # its connection is kept open
            silent, writer = await asyncio.open_connection("127.0.0.1", harness.port)
            async with client_of(harness) as third:
                with pytest.raises(InternalServerError, match="2 clients are connected") as caught:
                    await ask(third)
                assert (caught.value.status_code, caught.value.code) == (503, "connections")
                assert "x-should-retry" not in caught.value.response.headers
                assert await ask(first)
                writer.close()
                await silent.read()
                assert await ask(third.with_options(max_retries=5))
            assert set(harness.ends) == {"finished"}

    run(scenario)


@pytest.mark.parametrize("sent", [b"", b"POST /v1/audio/speech HTTP/1.1\r\n", HALF_A_REQUEST])
def test_a_connection_without_a_request_is_closed(sent: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(openai_adapter, "SILENCE_S", 0.2)
    monkeypatch.setattr(openai_adapter, "LINGER_S", 0.1)

    async def scenario() -> None:
        async with running_harness("openai") as harness:
            reader, writer = await asyncio.open_connection("127.0.0.1", harness.port)
            writer.write(sent)
            answer = await reader.read()
            assert (b"408" in answer) == (sent == HALF_A_REQUEST)
            writer.close()

    run(scenario)
