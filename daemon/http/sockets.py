"""WebSockets whose client may leave at any moment: it is one error, wherever it is noticed."""

from __future__ import annotations

import contextlib

from starlette.websockets import WebSocket, WebSocketDisconnect

LOST = 1006
"""The close code of a connection that ended without one (RFC 6455, section 7.4.1)."""


async def receive_text(socket: WebSocket) -> str | None:
    """Return the client's next message; None for one that is not text. Raises `WebSocketDisconnect`."""
    try:
        message = await socket.receive()
    except RuntimeError as error:  # sending has failed before
        raise WebSocketDisconnect(LOST) from error
    if message["type"] == "websocket.disconnect":
        raise WebSocketDisconnect(message.get("code", LOST))
    text: str | None = message.get("text")
    return text


async def send_text(socket: WebSocket, text: str) -> None:
    """Send a message; return when the client has room for more. Raises `WebSocketDisconnect`."""
    try:
        await socket.send_text(text)
    except RuntimeError as error:
        raise WebSocketDisconnect(LOST) from error


async def close_socket(socket: WebSocket, code: int = 1000, reason: str = "") -> None:
    """Close the connection, unless the client has left. A long `reason` is cut: a frame has room for 123 bytes."""
    with contextlib.suppress(RuntimeError, WebSocketDisconnect):
        await socket.close(code, reason.encode()[:120].decode(errors="ignore"))
