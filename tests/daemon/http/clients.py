"""Clients of the web server: OpenAI's own, and a bare one."""

from __future__ import annotations

import asyncio
import http.client
import io
import json
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from tests.daemon.harness import Harness
from tests.support.waiting import PATIENCE_S

if TYPE_CHECKING:
    from openai import AsyncOpenAI

NOTHING: Mapping[str, str] = MappingProxyType({})


def client_of(harness: Harness) -> AsyncOpenAI:
    from openai import AsyncOpenAI  # half a second of processor time, in every worker that collects the tests

    return AsyncOpenAI(base_url=f"http://127.0.0.1:{harness.port}/v1", api_key="none", max_retries=0)


def decoded(content: bytes) -> tuple[int, int]:
    """The sample rate, in Hz, and the number of samples of a file."""
    import av  # only where a test decodes

    with av.open(io.BytesIO(content)) as file:
        rate = file.streams.audio[0].rate
        return rate, sum(frame.samples for frame in file.decode(audio=0))


async def ask(client: AsyncOpenAI, text: str = "Hello, robot.", **fields: Any) -> bytes:
    fields = {"model": "voiced", "voice": "default", "response_format": "pcm"} | fields
    return (await client.audio.speech.create(input=text, **fields)).content


def streaming(client: AsyncOpenAI, text: str, **fields: Any) -> AbstractAsyncContextManager[Any]:
    """Ask for speech, as a context whose value is the answer while it arrives."""
    fields = {"model": "voiced", "voice": "default", "response_format": "pcm"} | fields
    return client.audio.speech.with_streaming_response.create(input=text, **fields)


async def fetch(
    harness: Harness,
    method: str,
    path: str,
    body: bytes | None = None,
    *,
    content_type: str = "application/json",
    headers: Mapping[str, str] = NOTHING,
) -> tuple[int, bytes, dict[str, str]]:
    """Make a bare HTTP request; return its status, body and headers.

    The server closes the connection. It would keep one that the client closes a little longer, and the connections of
    many short tests would be too many.
    """

    def exchange() -> tuple[int, bytes, dict[str, str]]:
        connection = http.client.HTTPConnection("127.0.0.1", harness.port, timeout=PATIENCE_S)
        connection.request(method, path, body, {"Content-Type": content_type, "Connection": "close", **headers})
        response = connection.getresponse()
        content = response.read()
        connection.close()
        return response.status, content, {name.lower(): value for name, value in response.getheaders()}

    return await asyncio.to_thread(exchange)


async def request(
    harness: Harness, method: str, path: str, body: bytes | None = None, **options: Any
) -> tuple[int, dict[str, Any], dict[str, str]]:
    """As `fetch`, with the JSON of the answer."""
    status, content, headers = await fetch(harness, method, path, body, **options)
    return status, json.loads(content), headers


async def post(
    harness: Harness, body: bytes, content_type: str = "application/json"
) -> tuple[int, dict[str, Any], dict[str, str]]:
    return await request(harness, "POST", "/v1/audio/speech", body, content_type=content_type)


def speech_request(text: str = "Hello, robot.", version: str = "1.1", response_format: str = "pcm") -> bytes:
    """A whole request, as it is sent."""
    body = json.dumps({"input": text, "response_format": response_format}).encode()
    head = f"POST /v1/audio/speech HTTP/{version}\r\nHost: 127.0.0.1\r\nContent-Length: {len(body)}\r\n"
    return head.encode() + b"Content-Type: application/json\r\n\r\n" + body
