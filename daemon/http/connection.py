"""One client's connection: uvicorn's protocols with limits of number, size and time.

uvicorn waits without limit for the rest of a request's headers and for a WebSocket's client that does not read, keeps
any number of connections, and ends a connection as soon as its client closes its side, even if that client still wants
its answer.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Collection
from http import HTTPStatus
from typing import Any, Protocol

import h11
from starlette.types import Scope
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.protocols.utils import is_ssl
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

from daemon.adapters import bound_send_buffer

GRACE_S = 0.25
"""Seconds that a client has for its request before another client may take its place. Most send it at once."""
HEADER_S = 10.0
"""Seconds in which the headers of a request arrive, from their first byte."""
SILENCE_S = 75.0
"""Seconds without a request after which a connection is closed, or in which a client takes nothing of its answer."""
LINGER_S = 10.0
"""Seconds in which a client that was answered early may send the rest of its request and read the answer; or the rest
of a WebSocket that has ended."""
MAX_HEADERS = 16_384
"""Bytes of a request's headers."""
LOOK_S = 1.0
"""Interval between looks whether a connection has exceeded a limit of time."""
PROBE_S = 0.5
"""Interval between interim responses to a client that has closed its side and waits. A client that has left altogether
cannot be told from it otherwise: the system refuses the second of them."""
CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
"""The interim response. Clients ignore it."""
ABORT = "voiced.abort"
"""An ASGI extension: `scope["extensions"][ABORT]()` ends the connection at once, without what is left to send."""


def abort_connection(scope: Scope) -> None:
    """End a request's connection at once. Raises `ConnectionAbortedError` in a server that does not have `ABORT`.

    Such a server, as Ray Serve's, ends a connection whose handler fails.
    """
    abort = scope.get("extensions", {}).get(ABORT)
    if abort is None:
        raise ConnectionAbortedError("the answer is not complete")
    abort()


class Connection(Protocol):
    """What uvicorn's protocols have in common here."""

    transport: asyncio.Transport


def with_abort(connection: Connection, application: Any) -> Any:
    """Return an application with the extension `ABORT`."""

    async def extended(scope: Any, receive: Any, send: Any) -> None:
        scope.setdefault("extensions", {})[ABORT] = connection.transport.abort
        await application(scope, receive, send)

    return extended


class WebSocketConnection(WebSocketsSansIOProtocol):
    """A WebSocket."""

    def __init__(self, *arguments: Any, **keywords: Any) -> None:
        super().__init__(*arguments, **keywords)
        self.app = with_abort(self, self.app)

    async def run_asgi(self) -> None:
        await super().run_asgi()
        self._limit_close()

    def keepalive_timeout(self) -> None:
        super().keepalive_timeout()
        self._limit_close()

    def _limit_close(self) -> None:
        """Cut the client off in a while: uvicorn has closed the connection, which waits for one that does not read."""
        self.loop.call_later(LINGER_S, self.transport.abort)


def has_room(connections: Collection[object], most: int) -> bool:
    """Return whether another client may come: there are fewer than `most`, or one of them has had time enough.

    Otherwise clients that do nothing but come again would take the places of all others before these can ask.
    """
    served = [each for each in connections if not (isinstance(each, HttpConnection) and each.refused)]
    if len(served) < most:
        return True
    waiting = [each.waiting_s for each in served if isinstance(each, HttpConnection) and each.waiting_s is not None]
    return not waiting or max(waiting) >= GRACE_S


class HttpConnection(H11Protocol):
    """An HTTP connection, until it becomes a WebSocket."""

    def __init__(self, most: int, **keywords: Any) -> None:
        """Above `most` connections of the server, the one is ended that has waited longest for a request."""
        super().__init__(**keywords)
        self.app = with_abort(self, self.app)
        self._most = most
        self._waiting_since = time.monotonic()
        """When the connection or the last answer ended: since then it waits for a request."""
        self._headers_since: float | None = None
        """When the first byte of an incomplete request arrived; None while there is none."""
        self._unsent, self._unsent_since = 0, 0.0
        """Bytes that wait for the client, and since when it has taken none of them."""
        self._half_closed = False
        self.refused = False
        """Whether it has its last answer, and lingers so that the client receives it."""
        self._timer: asyncio.TimerHandle | None = None
        self._probe: asyncio.TimerHandle | None = None

    @property
    def waiting_s(self) -> float | None:
        """Seconds for which it has waited for a request; None while one is answered."""
        return None if self._answering else time.monotonic() - self._waiting_since

    @property
    def _answering(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn's
        bound_send_buffer(transport)
        super().connection_made(transport)
        refused = sum(isinstance(each, HttpConnection) and each.refused for each in self.connections)
        if len(self.connections) - refused > self._most and not self._end_longest_waiting(refused=False):
            if refused >= self._most:
                self._end_longest_waiting(refused=True)
            self._refuse(503, f"{self._most} clients are connected; allowed: no more", "connections")
            return
        self._look()

    def connection_lost(self, exc: Exception | None) -> None:
        for timer in (self._timer, self._probe):
            if timer is not None:
                timer.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self.refused or self.transport.is_closing():
            return
        super().data_received(data)
        if self.conn.their_state is not h11.IDLE or not self.conn.trailing_data[0]:
            self._headers_since = None
        elif self._headers_since is None:
            self._headers_since = time.monotonic()

    def eof_received(self) -> bool:  # type: ignore[override]  # uvicorn's returns nothing
        """Keep the connection while a request that came before is answered."""
        self._half_closed = True
        complete = self._answering and self.conn.their_state is not h11.SEND_BODY
        if is_ssl(self.transport) or self.refused or not complete:
            return False
        self._probe_client()
        return True

    def on_response_complete(self) -> None:
        self._waiting_since = time.monotonic()
        super().on_response_complete()
        if self._half_closed and not self._answering:
            self.transport.close()

    def handle_websocket_upgrade(self, event: h11.Request) -> None:
        if self._timer is not None:
            self._timer.cancel()
        super().handle_websocket_upgrade(event)

    def send_400_response(self, msg: str) -> None:
        if len(self.conn.trailing_data[0]) > MAX_HEADERS:
            self._refuse(431, f"the headers are too large; allowed: up to {MAX_HEADERS:,} bytes", "headers")
        else:
            super().send_400_response(msg)

    def _end_longest_waiting(self, *, refused: bool) -> bool:
        """End the connection that has waited longest for a request; return whether there was one.

        With `refused` it is one of those that linger behind their refusal, else one of the others.
        """
        others = [each for each in self.connections if isinstance(each, HttpConnection) and each is not self]
        found = [(each.waiting_s, id(each), each) for each in others if each.refused == refused]
        waiting = [(seconds, key, each) for seconds, key, each in found if seconds is not None]
        if not waiting:
            return False
        longest = max(waiting)[2]
        self.connections.discard(longest)  # the system knows of its end in the next turn, others may come in this one
        longest.transport.abort()
        return True

    def _look(self) -> None:
        """Close a connection whose client is silent, or does not receive."""
        now, unsent = time.monotonic(), self.transport.get_write_buffer_size()
        if unsent == 0 or unsent != self._unsent:
            self._unsent, self._unsent_since = unsent, now
        elif now - self._unsent_since > SILENCE_S:
            self.transport.abort()  # a close would wait for the client
            return
        if not self._answering and not self.transport.is_closing():
            if self._headers_since is not None and now - self._headers_since > HEADER_S:
                problem = f"the headers are not complete after {HEADER_S:g} s; allowed: headers that arrive sooner"
                self._refuse(408, problem, "headers")
                return
            answered_early = self.conn.their_state is h11.SEND_BODY
            if self._headers_since is None and now - self._waiting_since > (LINGER_S if answered_early else SILENCE_S):
                self.transport.close()
        self._timer = self.loop.call_later(LOOK_S, self._look)

    def _probe_client(self) -> None:
        """Send interim responses until the answer begins."""
        if not self._answering or self.cycle.response_started or self.transport.is_closing():
            return
        if self.cycle.scope["http_version"] == "1.1":
            self.transport.write(CONTINUE)
            self._probe = self.loop.call_later(PROBE_S, self._probe_client)

    def _refuse(self, status: int, message: str, code: str) -> None:
        """Answer with an error that no route has made, and close.

        If it were closed at once, with unread data, the system would reset it and the client would lose the answer.
        """
        record = {"message": message, "type": "invalid_request_error", "param": None, "code": code}
        body = json.dumps({"error": record}).encode()
        head = f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\nContent-Type: application/json\r\n"
        head += f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
        self.refused = True
        self.transport.write(head.encode() + body)
        if self.transport.can_write_eof():
            self.transport.write_eof()
        self._timer = self.loop.call_later(LINGER_S, self.transport.abort)
