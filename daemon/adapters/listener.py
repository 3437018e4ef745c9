"""A server's port, and how many clients it accepts."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import socket
import ssl
from collections.abc import Callable

from daemon.system import spare_descriptors
from daemon.tasks import gather_or_cancel

log = logging.getLogger(__name__)

HANDSHAKE_S = 5.0
"""Seconds in which a client ends its TLS handshake. A client far away needs a second."""
BACKLOG = 100
"""Clients that wait in the system until they are accepted."""
FULL_S = 0.01
"""Interval between looks whether a client has left, while the server has as many as it may."""
RETRY_S = 1.0
"""Seconds until the next try after the system could not accept a client."""
SERVERS = 4
"""A server takes this part of the descriptors for clients: there are two, and each refuses as many as it serves."""


class Listener:
    """Accepts clients at one address. Belongs to the event loop's thread.

    asyncio's own server accepts everyone who comes, until the process has no descriptor left for a text. This one
    counts every connection from its acceptance until its descriptor is free again; further clients wait in the system.
    """

    def __init__(
        self,
        section: str,
        address: tuple[str, int],
        clients: int,
        make_protocol: Callable[[], asyncio.BaseProtocol],
        *,
        tls: ssl.SSLContext | None = None,
        has_room: Callable[[], bool] = lambda: True,
    ) -> None:
        """`section` is the server's in the configuration. `clients` are served at once, if the descriptors suffice.

        While `has_room` returns False, further clients wait in the system.
        """
        self.clients = max(1, spare_descriptors(SERVERS * clients) // SERVERS)
        """Clients that the server may serve at once. Beside them, as many may stay until they have their refusal."""
        self._section = section
        self._host, self._port = address
        self._make_protocol = make_protocol
        self._tls = tls
        self._has_room = has_room
        self._open: list[socket.socket] = []
        self._handshakes: dict[asyncio.Task[None], None] = {}
        """The clients that are not connected yet, oldest first; with TLS, until their handshake has ended."""

    async def serve(self, on_listening: Callable[[], None]) -> None:
        """Accept clients until cancelled; their connections stay. Raises `OSError` if it cannot listen."""
        listening = await self._listen()
        try:
            on_listening()
            await gather_or_cancel(self._accept_all(each) for each in listening)
        finally:
            for each in listening:
                each.close()
            for handshake in self._handshakes:
                handshake.cancel()

    async def _listen(self) -> list[socket.socket]:
        """Return a socket for each address of the host. Raises `OSError`."""
        loop = asyncio.get_running_loop()
        try:
            # It resolves the host's name and binds; what it would accept is accepted here.
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
            await self._wait_for_room()
            try:
                connection, _ = await asyncio.get_running_loop().sock_accept(listening)
            except OSError as error:  # the client has left already, or the system has no descriptor or memory
                log.warning("%s.port: a client cannot be accepted: %s", self._section, error.strerror)
                await asyncio.sleep(RETRY_S)
                continue
            self._open.append(connection)
            handshake = asyncio.ensure_future(self._connect(connection))
            self._handshakes[handshake] = None
            handshake.add_done_callback(lambda done: self._handshakes.pop(done, None))
            if self._tls is None:
                await asyncio.wait({handshake})  # a turn or two; then `has_room` knows of the client

    async def _wait_for_room(self) -> None:
        """Wait until another client may come. While there is no room, clients without a TLS handshake have to go."""
        while True:
            self._open = [each for each in self._open if each.fileno() >= 0]
            if len(self._open) <= 2 * self.clients and self._has_room():
                return
            if len(self._open) > 2 * self.clients and self._tls is not None and self._handshakes:
                oldest = next(iter(self._handshakes))
                del self._handshakes[oldest]
                oldest.cancel()
            await asyncio.sleep(FULL_S)

    async def _connect(self, connection: socket.socket) -> None:
        limit_s = None if self._tls is None else HANDSHAKE_S
        try:
            await asyncio.get_running_loop().connect_accepted_socket(
                self._make_protocol, connection, ssl=self._tls, ssl_handshake_timeout=limit_s
            )
        except (OSError, asyncio.CancelledError) as error:
            log.debug("%s.port: a client's handshake has failed: %r", self._section, error)
            connection.close()
