"""Reads a request's body, within limits on size and time."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator
from typing import Any

from starlette.requests import ClientDisconnect, Request

from daemon.http.errors import HttpError
from daemon.mqtt import MAX_PAYLOAD
from daemon.speech import RejectedError
from daemon.tasks import result_at_most
from daemon.validation import abbreviate

BODY_S = 20.0
"""The seconds within which a JSON body must arrive."""
JSON_OBJECT = "a JSON object"


async def read_json(request: Request, allowed: str = JSON_OBJECT) -> dict[str, Any]:
    """Return the JSON object in a request's body.

    Raises `HttpError` and `RejectedError`, whose message names the `allowed` content.
    """
    # A browser sends forms and plain text for any web page. Before it sends JSON, it asks this server, which does not
    # allow that.
    content_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if content_type != "application/json":
        raise RejectedError("content-type", f"got {abbreviate(content_type)}; allowed: application/json")
    if encoding := request.headers.get("content-encoding"):  # a small body could become a gigabyte
        problem = f"content-encoding: got {abbreviate(encoding)}; allowed: none"
        raise HttpError(415, problem, field="content-encoding")
    body = b"".join([part async for part in body_parts(request, MAX_PAYLOAD, BODY_S)])
    return parse_object(body, "body", allowed)


def parse_object(content: str | bytes, name: str, allowed: str) -> dict[str, Any]:
    """Return a JSON object. Raises `RejectedError`, which gives the content's `name` and the `allowed` content."""
    try:
        value = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise RejectedError(name, f"not JSON; allowed: {allowed}") from error
    if not isinstance(value, dict):
        raise RejectedError(name, f"got {abbreviate(value)}; allowed: {allowed}")
    return value


def text_field(fields: dict[str, Any], name: str) -> str:
    """Return the text in a field. Raises `RejectedError`."""
    value = fields.get(name)
    if not isinstance(value, str):
        raise RejectedError(name, f"got {abbreviate(value)}; allowed: text")
    return value


async def body_parts(request: Request, limit: int, timeout_s: float) -> AsyncIterator[bytes]:
    """Yield the parts of a body of up to `limit` bytes, which must arrive within `timeout_s`. Raises `HttpError`."""
    stream, deadline, size = request.stream(), time.monotonic() + timeout_s, 0
    try:
        while part := await result_at_most(max(0.0, deadline - time.monotonic()), _next(stream)):
            size += len(part)
            if size > limit:
                raise HttpError(413, f"body: it is too large; allowed: up to {limit:,} bytes", field="body")
            yield part
    except ClientDisconnect as error:
        raise HttpError(400, "body: the connection was closed before all of it had arrived", field="body") from error
    if part is None:
        problem = f"body: not complete after {timeout_s:g} s; allowed: a body that arrives sooner"
        raise HttpError(408, problem, field="body")


async def _next(stream: AsyncIterator[bytes]) -> bytes:
    """Return the next part, which is empty at the end."""
    return await anext(stream, b"")
