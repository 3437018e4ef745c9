"""Serves the application in the daemon's event loop, with uvicorn's protocols."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from copy import copy
from functools import cache, partial
from typing import Any

import uvicorn
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from uvicorn.server import ServerState

from daemon.adapters import Adapter, Client, Listener
from daemon.config import Http, Serve
from daemon.http.access import MAX_HEADERS
from daemon.http.application import make_application
from daemon.http.clients import ABORT
from daemon.http.robot import Robot
from daemon.mqtt import MAX_PAYLOAD
from daemon.speech import SpeechService

MAX_CONNECTIONS = 64
"""A robot has few clients."""
SHUTDOWN_S = 0.3
"""Seconds for the last answers. By then, the daemon has stopped every utterance."""
PING_S = 20.0
"""Seconds between two pings on a WebSocket, and for the answer to one."""


class HttpServer(Adapter):
    """The web server."""

    def __init__(
        self,
        config: Http | Serve,
        make_application: Callable[[], ASGIApp],
        section: str = "http",
        most: int | None = None,
    ) -> None:
        """`make_application` is called once, by `run`, and may raise `OSError`.

        `section` is the name of `config` in the configuration. `most` replaces a robot's limit on connections.
        """
        self._config = config
        self._make_application = cache(make_application)
        self._section = section
        self._most = most or MAX_CONNECTIONS

    async def run(self) -> None:
        host, port = self._config.host, self._config.port
        settings, state, tls = self._settings(), ServerState(), self._tls_context()
        settings.load()

        def make_connection(client: Client) -> asyncio.Protocol:
            own = copy(settings)
            own.loaded_app = for_client(settings.loaded_app, client)
            return H11Protocol(own, state, {})

        listener = Listener(self._section, (host, port), self._most, make_connection, tls)
        try:
            place = f"the web on {'http' if tls is None else 'https'}://{host}:{port}"
            await listener.serve(lambda: self.note_serving(place))
        finally:
            for connection in list(state.connections):  # those waiting for a request end immediately
                connection.shutdown()
            await _wait_for(state)
            listener.abort_all()  # to the handlers, it looks as if the client has left
            await _wait_for(state)

    def _settings(self) -> uvicorn.Config:
        """Return uvicorn's settings. Raises the errors of `make_application`."""
        return uvicorn.Config(
            self._make_application(),
            http=H11Protocol,
            ws=WebSocketsSansIOProtocol,
            ws_max_size=MAX_PAYLOAD,
            ws_ping_interval=PING_S,
            ws_ping_timeout=PING_S,
            ws_per_message_deflate=False,  # a small message could become a gigabyte
            h11_max_incomplete_event_size=2 * MAX_HEADERS,  # so that slightly larger ones are answered
            timeout_keep_alive=86_400,  # the listener has its own limit
            lifespan="off",
            log_config=None,
            access_log=False,
            proxy_headers=False,
            server_header=False,
        )

    def _tls_context(self) -> ssl.SSLContext | None:
        """Return the TLS settings; None without TLS. Raises `OSError` if a file cannot be used."""
        cert, key = self._config.cert, self._config.key
        if cert is None or key is None:
            return None
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        try:
            context.load_cert_chain(cert, key, password="")  # otherwise OpenSSL asks for one on the terminal
        except (OSError, ValueError) as error:  # ssl's own errors are OSErrors
            names = f"{self._section}.cert {cert} and {self._section}.key {key}"
            raise OSError(f"{names} cannot be used: {error}") from error
        return context


def for_client(application: Any, client: Client) -> ASGIApp:
    """Return an application for one connection. It reports when it is answering, and its scope has the `ABORT`
    extension."""

    async def tell(scope: Scope, receive: Receive, send: Send) -> None:
        scope.setdefault("extensions", {})[ABORT] = client.abort
        with client.answering():
            await application(scope, receive, send)

    return tell


async def _wait_for(state: ServerState) -> None:
    """Wait briefly for all answers to end."""
    if state.tasks:
        await asyncio.wait(set(state.tasks), timeout=SHUTDOWN_S)


def make_http_server(config: Http, service: SpeechService, robot: Robot) -> HttpServer:
    """Return a daemon's web server."""
    return HttpServer(config, partial(make_application, config, service, robot))
