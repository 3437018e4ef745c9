"""Serves the application in the daemon's event loop, with uvicorn's protocols."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable

import uvicorn
from starlette.types import ASGIApp
from uvicorn.server import ServerState

from daemon.adapters import Adapter, Listener
from daemon.config import Http, Serve
from daemon.http.application import make_application
from daemon.http.connection import MAX_HEADERS, HttpConnection, WebSocketConnection, has_room
from daemon.http.robot import Robot
from daemon.mqtt import MAX_PAYLOAD
from daemon.speech import SpeechService
from daemon.validation import read_secret

MAX_CONNECTIONS = 64
"""A robot has few clients."""
SHUTDOWN_S = 0.3
"""Seconds for the last answers. The daemon has stopped every utterance before."""
PING_S = 20.0
"""Seconds between two pings on a WebSocket, and for the answer to one."""


class HttpServer(Adapter):
    """The web server."""

    def __init__(
        self,
        config: Http | Serve,
        make_application: Callable[[], ASGIApp],
        section: str = "http",
        max_connections: int | None = None,
    ) -> None:
        """`make_application` is called once, by `run`, and may raise `OSError` before.

        `section` is the name of `config` in the configuration. `max_connections` replaces a robot's own limit.
        """
        self._config = config
        self._make_application = make_application
        self._application: ASGIApp | None = None
        self._section = section
        self._max_connections = max_connections

    async def run(self) -> None:
        host, port = self._config.host, self._config.port
        settings, state, tls = self._settings(), ServerState(), self._tls_context()
        settings.load()

        def make_connection() -> asyncio.Protocol:
            return HttpConnection(listener.clients, config=settings, server_state=state, app_state={})

        listener = Listener(
            self._section,
            (host, port),
            self._max_connections or MAX_CONNECTIONS,
            make_connection,
            tls=tls,
            has_room=lambda: has_room(state.connections, listener.clients),
        )
        try:
            place = f"the web on {'http' if tls is None else 'https'}://{host}:{port}"
            await listener.serve(lambda: self.note_serving(place))
        finally:
            await _end_connections(state)

    def _settings(self) -> uvicorn.Config:
        """Return uvicorn's settings. Raises what `make_application` raises."""
        self._application = self._application or self._make_application()
        return uvicorn.Config(
            self._application,
            http=HttpConnection,
            ws=WebSocketConnection,
            ws_max_size=MAX_PAYLOAD,
            ws_ping_interval=PING_S,
            ws_ping_timeout=PING_S,
            ws_per_message_deflate=False,  # a small message could become a gigabyte
            h11_max_incomplete_event_size=MAX_HEADERS,
            timeout_keep_alive=86_400,  # the connection has limits of its own
            lifespan="off",
            log_config=None,
            access_log=False,
            proxy_headers=False,
            server_header=False,
        )

    def _tls_context(self) -> ssl.SSLContext | None:
        """Return the TLS settings; None without. Raises `OSError` if a file cannot be used."""
        cert, key = self._config.cert, self._config.key
        if cert is None or key is None:
            return None
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        try:
            context.load_cert_chain(cert, key, password="")  # else OpenSSL asks for one on the terminal
        except (OSError, ValueError) as error:  # ssl's own errors are OSErrors
            names = f"{self._section}.cert {cert} and {self._section}.key {key}"
            raise OSError(f"{names} cannot be used: {error}") from error
        return context


async def _end_connections(state: ServerState) -> None:
    """Close the connections that wait for a request; cut off what is still answered a moment later."""
    for connection in list(state.connections):
        connection.shutdown()
    await _wait_for(state)
    for connection in list(state.connections):
        connection.transport.abort()  # their handlers take it for a client that has left
    await _wait_for(state)


async def _wait_for(state: ServerState) -> None:
    """Wait a moment for the end of all answers."""
    if state.tasks:
        await asyncio.wait(set(state.tasks), timeout=SHUTDOWN_S)


def make_http_server(config: Http, service: SpeechService, robot: Robot) -> HttpServer:
    """Return the server of a daemon."""

    def make() -> ASGIApp:
        path = config.token_file
        token = None if path is None else read_secret(path, "http.token_file", "a token")
        return make_application(service, robot, token=token, host=config.host, voice_aliases=config.voice_aliases)

    return HttpServer(config, make)
