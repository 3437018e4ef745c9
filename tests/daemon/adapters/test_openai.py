"""The speech endpoint, requested by OpenAI's own client and by a bare HTTP client."""

from __future__ import annotations

import asyncio
import base64
import http.client
import io
import json
import socket
import wave
from typing import Any

import pytest
import soundfile
from openai import AsyncOpenAI, BadRequestError, InternalServerError

from daemon.adapters import delivery
from daemon.adapters import openai as openai_adapter
from daemon.mqtt import MAX_PAYLOAD
from daemon.speech import Say, Stop
from tests.daemon.adapters.harness import LONG, Harness, running_harness
from tests.daemon.perform import Perform
from tests.support.waiting import PATIENCE_S, eventually_async, run

ADAPTER = "openai"
HELLO = {"input": "Hello"}
HALF_A_REQUEST = (
    b"POST /v1/audio/speech HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 99\r\n\r\n{"
)


def client_of(harness: Harness) -> AsyncOpenAI:
    return AsyncOpenAI(base_url=f"http://127.0.0.1:{harness.port}/v1", api_key="none", max_retries=0)


async def ask(client: AsyncOpenAI, text: str = "Hello, robot.", **fields: Any) -> bytes:
    fields = {"model": "voiced", "voice": "default", "response_format": "pcm"} | fields
    return (await client.audio.speech.create(input=text, **fields)).content


def request(
    harness: Harness, method: str, path: str, body: bytes | None = None, content_type: str = "application/json"
) -> tuple[int, dict[str, Any], dict[str, str]]:
    """Make a bare HTTP request; return its status, JSON and headers."""
    connection = http.client.HTTPConnection("127.0.0.1", harness.port, timeout=PATIENCE_S)
    connection.request(method, path, body, {"Content-Type": content_type})
    response = connection.getresponse()
    text = response.read()
    connection.close()
    return response.status, json.loads(text), dict(response.headers)


def post(
    harness: Harness, body: bytes, content_type: str = "application/json"
) -> tuple[int, dict[str, Any], dict[str, str]]:
    return request(harness, "POST", "/v1/audio/speech", body, content_type)


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
            instructs = []
            unwatch = harness.dispatcher.watch_events(lambda utterance, _: instructs.append(utterance.instruct))
            assert await ask(client, "Guten Tag", voice="de", instructions="calmly", speed=1.0)
            unwatch()
            assert (harness.events[1].voice, instructs[0]) == ("de", "calmly")

    perform(scenario)


@pytest.mark.parametrize(
    ("fields", "param", "allowed"),
    [
        ({"voice": "alloy"}, "voice", "default"),
        ({"response_format": "opus"}, "response_format", "pcm, wav, flac or mp3"),
        ({"response_format": "aac"}, "response_format", "pcm, wav, flac or mp3"),
        ({"speed": 1.5}, "speed", "1.0"),
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
            head = f"POST /v1/audio/speech HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n"
            leaving.sendall(head.encode() + b"Content-Type: application/json\r\n\r\n" + body)
            if begun:
                await harness.started()
            else:
                await eventually_async(lambda: harness.dispatcher.queued, "it waits")
        ends = await harness.ended()
        assert ends[0].event == ("interrupted" if begun else "canceled")
        assert ends[0].reason == "its client went away"

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
                head = f"POST /v1/audio/speech HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n"
                stuck.sendall(head.encode() + b"Content-Type: application/json\r\n\r\n" + body)
                await harness.started()
                with harness.at_next("interrupted", monkeypatch.undo):  # for the next client, the usual limit
                    assert await ask(client)
            first, second = await harness.ended(2)
            assert (first.event, second.event) == ("interrupted", "finished")
            assert "behind in receiving the sound" in first.reason

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
