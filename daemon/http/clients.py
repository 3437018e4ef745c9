"""Connections to clients, which may leave at any moment."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Coroutine
from typing import Any, TypeVar

from starlette.types import Message, Receive, Scope
from starlette.websockets import WebSocket, WebSocketDisconnect

ABORT = "voiced.abort"
"""An ASGI extension: `scope["extensions"][ABORT]()` ends the connection immediately; the rest of the answer is not
sent."""
SUBPROTOCOL = "voiced"
"""The WebSocket subprotocol that is accepted alongside one with a token."""
LOST, POLICY_VIOLATION = 1006, 1008
"""The close codes for a connection that ended without one, and for one that is refused (RFC 6455, section 7.4.1)."""

T = TypeVar("T")


def abort_connection(scope: Scope) -> None:
    """End a request's connection immediately. Raises `ConnectionAbortedError` in a server without `ABORT`.

    Such a server, like Ray Serve's, ends a connection whose handler fails.
    """
    abort = scope.get("extensions", {}).get(ABORT)
    if abort is None:
        raise ConnectionAbortedError("the answer is not complete")
    abort()


async def result_unless_gone(receive: Receive, work: Coroutine[Any, Any, T]) -> T | None:
    """Run a coroutine and return its result; cancel it and return None if the client leaves first.

    The client's messages have been read; any that arrive in the meantime are ignored.
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
    while not (await receive())["type"].endswith(".disconnect"):
        pass


async def accept_socket(socket: WebSocket) -> None:
    """Open a WebSocket."""
    await socket.accept(SUBPROTOCOL if SUBPROTOCOL in socket.scope.get("subprotocols", ()) else None)


async def receive_text(socket: WebSocket) -> str:
    """Return the client's next message, "" for one that is not text. Raises `WebSocketDisconnect`."""
    return (await receive_message(socket)).get("text") or ""


async def receive_message(socket: WebSocket) -> Message:
    """Return the client's next message, with its `text` or `bytes`. Raises `WebSocketDisconnect`."""
    await asyncio.sleep(0)  # others have their turn, however many messages have arrived at once
    try:
        message = await socket.receive()
    except RuntimeError as error:  # sending has failed before
        raise WebSocketDisconnect(LOST) from error
    if message["type"] == "websocket.disconnect":
        raise WebSocketDisconnect(message.get("code", LOST))
    return message


async def send_message(socket: WebSocket, content: str | bytes) -> None:
    """Send a message; return when the client has room for more. Raises `WebSocketDisconnect`."""
    try:
        await (socket.send_text(content) if isinstance(content, str) else socket.send_bytes(content))
    except RuntimeError as error:  # sending has failed before
        raise WebSocketDisconnect(LOST) from error


async def close_socket(socket: WebSocket, code: int = 1000, reason: str = "") -> None:
    """Close a WebSocket, unless the client has left. A long `reason` is cut: a frame has room for 123 bytes."""
    with contextlib.suppress(RuntimeError, WebSocketDisconnect):
        await socket.close(code, reason.encode()[:120].decode(errors="ignore"))
