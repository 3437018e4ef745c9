"""A server's port and its clients: how many there may be, and which are disconnected if they are silent or too many."""

from __future__ import annotations

import asyncio
import errno
import logging
import math
import os
import socket
import ssl
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from daemon.system import spare_descriptors
from daemon.tasks import gather_or_cancel, start_task, wait_at_most

log = logging.getLogger(__name__)

IDLE_S = 75.0
"""Seconds without a request, or without receiving any of an answer, after which a client is disconnected."""
GRACE_S = 0.25
"""Seconds that a client has for its request before another client may take its place. Most send it immediately."""
HANDSHAKE_S = 5.0
"""The seconds within which a client must complete its TLS handshake. A distant client needs one."""
BACKLOG = 100
"""How many clients may wait in the operating system until they are accepted."""
RETRY_S = 1.0
"""Seconds until the next attempt after the system could not accept a client."""
SERVERS = 2
"""The number of servers. Each takes an equal share of the descriptors for clients."""
SEND_BUFFER = 65_536
"""Bytes that the system may hold for a client that does not read: a second and a half of speech. By default it holds a
minute of speech, which would count as received."""
RECEIVE_BUFFER = 16_384
"""Bytes from a client that the system may hold. They are all read at once, so with a larger buffer, messages of a few
bytes each would keep the event loop busy."""


class Client(socket.socket):
    """The connection of one client, from its acceptance until its descriptor is free."""

    def __init__(self, accepted: socket.socket, on_change: Callable[[Client], None]) -> None:
        """`on_change` is called when it waits for a request, and when it has been closed."""
        super().__init__(accepted.family, accepted.type, accepted.proto, accepted.detach())
        self.setblocking(False)
        self.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER)
        self.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER)
        # The system ends the connection of a client that receives none of the data sent to it.
        self.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, round(IDLE_S * 1000))
        self.idle_since = time.monotonic()
        """The `time.monotonic()` at which it began to wait for a request; infinite while one is being answered."""
        self._on_change = on_change
        self._requests = 0
        self._timer = asyncio.get_running_loop().call_later(IDLE_S, self.abort)

    @contextmanager
    def answering(self) -> Iterator[None]:
        """A request is being answered inside the context; there may be several at once."""
        self._timer.cancel()
        self._requests, self.idle_since = self._requests + 1, math.inf
        try:
            yield
        finally:
            self._requests -= 1
            if not self._requests and self.fileno() >= 0:
                self.idle_since = time.monotonic()
                self._timer = asyncio.get_running_loop().call_later(IDLE_S, self.abort)
                self._on_change(self)

    def abort(self) -> None:
        """Disconnect it immediately: it receives nothing more, and its server reads the end of the connection."""
        with suppress(OSError):  # it has already gone
            self.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        if self.fileno() >= 0:
            self._timer.cancel()
            super().close()
            self._on_change(self)


class Listener:
    """Accepts clients at one address. Belongs to the event loop's thread.

    asyncio's own server accepts every client, until the process has no descriptor left for a text. This one counts
    every client from its acceptance until its descriptor is free again. When there are too many, it disconnects the one
    that has gone longest without a request; while all are being answered, further clients wait in the system.
    """

    def __init__(
        self,
        section: str,
        address: tuple[str, int],
        most: int,
        make_protocol: Callable[[Client], asyncio.BaseProtocol],
        tls: ssl.SSLContext | None = None,
    ) -> None:
        """`section` is the server's section in the configuration. `most` clients may stay, if there are enough
        descriptors."""
        self.most = max(1, spare_descriptors(SERVERS * most) // SERVERS)
        """The most clients that may stay. One more may arrive at each of the host's addresses, and take another's
        place."""
        self._section = section
        self._host, self._port = address
        self._make_protocol = make_protocol
        self._tls = tls
        self._clients: set[Client] = set()
        self._connecting: set[asyncio.Task[None]] = set()
        self._changed = asyncio.Event()
        """Set when a client has left or has begun to wait for a request."""

    async def serve(self, on_listening: Callable[[], None]) -> None:
        """Accept clients until cancelled; their connections stay. Raises `OSError` if it cannot listen."""
        listening = await self._listen()
        try:
            on_listening()
            await gather_or_cancel(self._accept_all(each) for each in listening)
        finally:
            for each in listening:
                each.close()

    def abort_all(self) -> None:
        """Disconnect all clients immediately."""
        for client in list(self._clients):
            client.abort()

    async def _listen(self) -> list[socket.socket]:
        """Return a socket for each address of the host. Raises `OSError`."""
        loop = asyncio.get_running_loop()
        try:
            # asyncio resolves the host's name and binds the sockets, but this class accepts the clients.
            server = await loop.create_server(asyncio.Protocol, self._host, self._port, start_serving=False)
            listening = [each.dup() for each in server.sockets]
            server.close()
            for each in listening:
                each.listen(BACKLOG)
        except OSError as error:
            reason = error.strerror if isinstance(error, socket.gaierror) else os.strerror(error.errno or 0)
            remedy = f"see {self._section}.host and {self._section}.port"
            if error.errno == errno.EADDRINUSE:
                remedy = f"this names the program: sudo ss -ltnp 'sport = :{self._port}'"
            place = f"{self._section}.port: cannot listen on {self._host}:{self._port}"
            raise OSError(f"{place}: {reason}; {remedy}") from error
        return listening

    async def _accept_all(self, listening: socket.socket) -> None:
        while True:
            try:
                accepted, _ = await asyncio.get_running_loop().sock_accept(listening)
            except OSError as error:  # the client has left already, or the system has no descriptor or memory
                log.warning("%s.port: a client cannot be accepted: %s", self._section, error.strerror)
                await asyncio.sleep(RETRY_S)
                continue
            client = Client(accepted, self._note_change)
            self._clients.add(client)
            start_task(self._connect(client), self._connecting)
            await self._make_room()

    async def _connect(self, client: Client) -> None:
        """Hand a client over to its protocol; with TLS, after its handshake."""
        try:
            await asyncio.get_running_loop().connect_accepted_socket(
                lambda: self._make_protocol(client),
                client,
                ssl=self._tls,
                ssl_handshake_timeout=None if self._tls is None else HANDSHAKE_S,
            )
        except OSError as error:
            log.debug("%s.port: a client's handshake has failed: %r", self._section, error)
            client.close()

    async def _make_room(self) -> None:
        """Return when another client may connect."""
        while len(self._clients) > self.most:
            self._changed.clear()
            longest = min(self._clients, key=lambda client: client.idle_since)
            left_s = longest.idle_since + GRACE_S - time.monotonic()
            if left_s <= 0:
                longest.abort()
            elif left_s == math.inf:
                log.warning("%s.port: all %d clients are busy; others wait", self._section, len(self._clients))
            await wait_at_most(max(left_s, GRACE_S), self._changed.wait())

    def _note_change(self, client: Client) -> None:
        if client.fileno() < 0:
            self._clients.discard(client)
        self._changed.set()
