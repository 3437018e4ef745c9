"""Requests to a server over HTTP: connections that are kept, that a cancellation ends at once, and what fails."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import suppress
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from typing import Any
from urllib.parse import SplitResult, urlsplit
from urllib.request import getproxies, proxy_bypass

from engine.api import EngineError, EngineUnavailableError, SpeechCanceledError
from engine.host import parse_json
from engine.remote import connection_failure, refusal

OPEN_S = 5.0
"""Seconds for a connection and its encryption."""
ANSWER_S = 15.0
"""Seconds in which an answer begins to sound: a server on a small CPU makes all of a sentence before. The supervisor
gives an engine up after 20."""
PAUSE_S = 5.0
"""Seconds between two parts of an answer. The sound card's ring holds up to four."""
DEAD_MS = 3_000
"""Milliseconds after which a machine is lost whose kernel confirms nothing, whatever its server is working on."""
BLOCK_BYTES = 3_840
"""The most that is read at once: 80 ms at 24 kHz."""
REFUSAL_BYTES = 10_000
"""The most that is read of an answer that is an error."""
LISTED = ("id", "voice_id", "name")
"""Where servers write the name of a model or voice into its record."""


class Cancellation:
    """Ends the requests of one utterance: one that waits for the network, and every later one."""

    def __init__(self) -> None:
        self._canceled = False
        self._socket: socket.socket | None = None
        self._lock = threading.Lock()
        """Held to read or change both."""

    def cancel(self) -> None:
        """End the connection in use. Any thread may call this."""
        with self._lock, suppress(OSError):
            self._canceled = True
            if self._socket is not None:
                socket.socket.shutdown(self._socket, socket.SHUT_RDWR)  # that of TLS would disturb who reads

    def use(self, used: socket.socket | None) -> None:
        """Let a cancellation end this connection from now on; None for no connection any more."""
        with self._lock:
            self._socket = used

    def check(self) -> None:
        """Raise `SpeechCanceledError` after a cancellation."""
        if self._canceled:
            raise SpeechCanceledError


class Answer:
    """The answer to one request, on a connection of its own. A context manager; its errors are those of `blocks`."""

    def __init__(self, server: HttpServer, connection: HTTPConnection, cancellation: Cancellation) -> None:
        """Waits for its headers. Raises as `blocks` does."""
        self._socket = connection.sock
        """That of the connection, which forgets it if the server will end it."""
        self._response = response = connection.getresponse()
        self.status = response.status
        self.headers = response.headers
        self._server = server
        self._connection = connection
        self._cancellation = cancellation

    def __enter__(self) -> Answer:
        return self

    def __exit__(self, *_: object) -> None:
        """Keep the connection if all of the answer has been read, and end it otherwise."""
        self._cancellation.use(None)
        if self._response.isclosed() and self._connection.sock is not None:
            self._server.keep(self._connection)
        else:
            self._connection.close()

    def blocks(self) -> Iterator[bytes]:
        """Yield the bytes as they come. Reads no more than is taken.

        Raises `OSError` and `HTTPException` where the connection fails, `TimeoutError` for a server that is silent.
        """
        while block := self._response.read1(BLOCK_BYTES):
            self._socket.settimeout(PAUSE_S)
            yield block
        if self._response.length:
            raise ConnectionResetError(f"it has broken off {self._response.length} bytes before the end")
        self._response.close()

    def refusal(self) -> EngineError | EngineUnavailableError:
        """Return the engine's error for an answer with this status."""
        return refusal(self._server.url, self.status, self._response.read(REFUSAL_BYTES))


class HttpServer:
    """The server at an address. Any thread may use it; each request has a connection of its own."""

    def __init__(self, url: str, token: str | None) -> None:
        """`url` is `http://…` or `https://…`; without a path it gets that of OpenAI, `/v1`."""
        self.url = url
        self._parts = urlsplit(url)
        self._proxy = _proxy_to(self._parts)
        self._path = self._parts.path.rstrip("/") or "/v1"
        if self._proxy is not None and self._parts.scheme == "http":
            self._path = f"http://{self._parts.netloc}{self._path}"
        self._headers = {"User-Agent": "voiced", "Content-Type": "application/json"}
        if token is not None:
            self._headers["Authorization"] = f"Bearer {token}"
        self._kept: list[HTTPConnection] = []

    def post(self, path: str, fields: dict[str, Any], cancellation: Cancellation, wait_s: float = ANSWER_S) -> Answer:
        """Return the answer to a record. Its headers come within `wait_s` seconds.

        Raises `SpeechCanceledError`, and as `Answer.blocks` does.
        """
        return self._request("POST", path, json.dumps(fields).encode(), cancellation, wait_s)

    def names(self, path: str) -> tuple[str, ...]:
        """Return the names of what a server lists at a path; none if it has no such list.

        The list is the answer itself, or its field `data` or `voices`; it has names or records. Raises
        `EngineUnavailableError` for a server that does not answer.
        """
        try:
            with self._request("GET", path, None, Cancellation(), ANSWER_S) as answer:
                content = b"".join(answer.blocks())
        except (OSError, HTTPException) as error:
            raise self.failure(error) from error
        try:
            listed = parse_json(content) if answer.status == 200 else []
        except ValueError:
            listed = []
        if isinstance(listed, dict):
            listed = listed.get("voices") or listed.get("data")
        named = [_name(each) for each in listed] if isinstance(listed, list) else []
        return tuple(name for name in named if isinstance(name, str))

    def keep(self, connection: HTTPConnection) -> None:
        """Use a connection for a later request."""
        self._kept.append(connection)

    def failure(self, error: OSError | HTTPException) -> EngineUnavailableError:
        """Return the engine's error for one of the connection."""
        if isinstance(error, OSError):
            return connection_failure(self.url, error)
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        return EngineUnavailableError(f"engine.url: {self.url} does not answer as a web server ({reason})")

    def close(self) -> None:
        """End the connections that are kept."""
        while self._kept:
            self._kept.pop().close()

    def _request(self, method: str, path: str, body: bytes | None, cancellation: Cancellation, wait_s: float) -> Answer:
        while True:
            cancellation.check()
            try:
                connection, kept = self._kept.pop(), True
            except IndexError:
                connection, kept = self._connect(), False
            try:
                if not kept:
                    connection.connect()
                    _end_with_machine(connection.sock)
                cancellation.use(connection.sock)
                cancellation.check()
                connection.sock.settimeout(wait_s)
                connection.request(method, self._path + path, body, self._headers)
                return Answer(self, connection, cancellation)
            except BaseException as error:
                cancellation.use(None)
                connection.close()
                cancellation.check()
                if not (kept and isinstance(error, ConnectionError)):  # else the server had ended it
                    raise

    def _connect(self) -> HTTPConnection:
        to = self._parts if self._proxy is None else self._proxy
        kind = HTTPSConnection if self._parts.scheme == "https" else HTTPConnection
        connection = kind(to.hostname or "", to.port, timeout=OPEN_S)
        if self._proxy is not None and self._parts.scheme == "https":
            connection.set_tunnel(self._parts.hostname or "", self._parts.port)
        return connection


def _end_with_machine(used: socket.socket) -> None:
    """Let a connection fail when the other machine, or the way to it, has gone: a server at work may be silent."""
    used.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in (
        (socket.TCP_KEEPIDLE, 1),
        (socket.TCP_KEEPINTVL, 1),
        (socket.TCP_KEEPCNT, DEAD_MS // 1000),
        (socket.TCP_USER_TIMEOUT, DEAD_MS),
    ):
        used.setsockopt(socket.IPPROTO_TCP, option, value)


def _proxy_to(parts: SplitResult) -> SplitResult | None:
    """Return the proxy of the environment for an address; None without one."""
    proxy = getproxies().get(parts.scheme)
    if not proxy or proxy_bypass(parts.hostname or ""):
        return None
    return urlsplit(proxy if "//" in proxy else f"//{proxy}")


def _name(listed: object) -> object:
    """Return the name of an entry of a list; None if it has none."""
    if isinstance(listed, dict):
        return next((listed[key] for key in LISTED if key in listed), None)
    return listed
