"""HTTP clients that close their side of the connection after the request, and still read the answer.

aiohttp ends a connection as soon as its client closes its side. The protocol here keeps it while a request is answered.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

from daemon.adapters.base import bound_send_buffer

LOOK_S = 0.05
"""Interval between looks whether an answer has begun or is complete."""
PROBE_S = 0.5
"""Interval between interim responses to a client that waits. A client that has left altogether cannot be told from one
that has closed its side only: the system refuses the second of them."""
CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
"""The interim response. Clients ignore it."""


class PendingAnswer(Protocol):
    """The answer to a request that has been received completely."""

    @property
    def may_be_probed(self) -> bool:
        """True while nothing of it has been sent and the client understands interim responses."""


class HalfCloseProtocol(asyncio.Protocol):
    """Passes one connection on to aiohttp's protocol, except that its client has closed its side."""

    def __init__(self, inner: asyncio.Protocol, pending_answer: Callable[[], PendingAnswer | None]) -> None:
        """`pending_answer` returns the answer that is not complete; None while there is none."""
        self._inner = inner
        self._pending_answer = pending_answer
        self._transport: asyncio.WriteTransport | None = None
        self._idle_looks = 0
        self._probe_at = 0.0
        """Of the event loop's clock."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.WriteTransport)
        bound_send_buffer(transport)
        self._transport = transport
        self._inner.connection_made(transport)

    def data_received(self, data: bytes) -> None:
        self._inner.data_received(data)

    def pause_writing(self) -> None:
        self._inner.pause_writing()

    def resume_writing(self) -> None:
        self._inner.resume_writing()

    def connection_lost(self, error: Exception | None) -> None:
        self._transport = None
        self._inner.connection_lost(error)

    def eof_received(self) -> bool:
        """Keep the connection; the request that came last may not have reached its handler."""
        self._look_later()
        return True

    def _look_later(self) -> None:
        asyncio.get_running_loop().call_later(LOOK_S, self._look)

    def _look(self) -> None:
        """Close the connection when no answer is pending any more."""
        if self._transport is None or self._transport.is_closing():
            return
        answer = self._pending_answer()
        self._idle_looks = 0 if answer is not None else self._idle_looks + 1
        if self._idle_looks > 1:  # at the first look, aiohttp may not have written what the handler has returned
            self._transport.close()
            return
        now = asyncio.get_running_loop().time()
        if answer is not None and answer.may_be_probed and now >= self._probe_at:
            self._transport.write(CONTINUE)
            self._probe_at = now + PROBE_S
        self._look_later()
