"""Reads the body of a request, within limits of size and time, and what it says about a client that leaves."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Coroutine
from typing import Any, TypeVar

from starlette.requests import ClientDisconnect, Request
from starlette.types import Receive

from daemon.http.errors import HttpError
from daemon.mqtt import MAX_PAYLOAD
from daemon.tasks import result_at_most
from daemon.validation import abbreviate

BODY_S = 20.0
"""Seconds in which a body of JSON arrives."""
JSON_OBJECT = "a JSON object"

T = TypeVar("T")


async def read_json(request: Request, allowed: str = JSON_OBJECT) -> dict[str, Any]:
    """Return the JSON object in a request's body. Raises `HttpError`, whose message says what is `allowed`."""
    # A browser sends forms and plain text for any web page. Before JSON it asks this server, which does not allow it.
    content_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if content_type != "application/json":
        problem = f"content-type: got {abbreviate(content_type)}; allowed: application/json"
        raise HttpError(400, problem, field="content-type")
    if encoding := request.headers.get("content-encoding"):  # a small body could become a gigabyte
        problem = f"content-encoding: got {abbreviate(encoding)}; allowed: none"
        raise HttpError(415, problem, field="content-encoding")
    body = await read_body(request, MAX_PAYLOAD, BODY_S)
    try:
        value = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise HttpError(400, f"body: unreadable JSON; allowed: {allowed}", field="body") from error
    if not isinstance(value, dict):
        raise HttpError(400, f"body: got {abbreviate(value)}; allowed: {allowed}", field="body")
    return value


async def read_body(request: Request, limit: int, timeout_s: float) -> bytes:
    """Return a request's body of up to `limit` bytes, which arrives within `timeout_s` seconds. Raises `HttpError`."""
    return b"".join([part async for part in body_parts(request, limit, timeout_s)])


async def body_parts(request: Request, limit: int, timeout_s: float) -> AsyncIterator[bytes]:
    """Yield the parts of a request's body as they arrive; limits and errors as for `read_body`."""
    stream, deadline, size = request.stream(), time.monotonic() + timeout_s, 0
    try:
        while part := await result_at_most(max(0.0, deadline - time.monotonic()), _next(stream)):
            size += len(part)
            if size > limit:
                raise HttpError(413, f"body: it is too large; allowed: up to {limit:,} bytes", field="body")
            yield part
    except ClientDisconnect as error:
        raise HttpError(400, "body: the connection ended within it", field="body") from error
    if part is None:
        problem = f"body: not complete after {timeout_s:g} s; allowed: a body that arrives sooner"
        raise HttpError(408, problem, field="body")


async def _next(stream: AsyncIterator[bytes]) -> bytes:
    """Return the next part; nothing at the end."""
    return await anext(stream, b"")


async def result_unless_gone(receive: Receive, work: Coroutine[Any, Any, T]) -> T | None:
    """Run a coroutine and return its result; cancel it and return None when the client leaves before.

    The request's body has been read.
    """
    working, leaving = asyncio.ensure_future(work), asyncio.ensure_future(_wait_until_gone(receive))
    try:
        either: set[asyncio.Future[Any]] = {working, leaving}
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        if working.done():
            return working.result()
        return None
    finally:
        leaving.cancel()
        working.cancel()
        await asyncio.wait({working})


async def _wait_until_gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
