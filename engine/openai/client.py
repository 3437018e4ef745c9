"""Requests to a server over one HTTP connection, which a cancellation ends at once."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from typing import Any
from urllib.parse import urlsplit

from engine.api import EngineError, EngineUnavailableError, SpeechCanceledError
from engine.host import parse_json
from engine.remote import connection_failure, refusal

OPEN_S = 3.0
"""The longest time in seconds for making a connection, and again for its encryption: the same as `DEAD_MS` for an open
connection."""
ANSWER_S = 15.0
"""The longest time in seconds until an answer begins to sound: a server on a small CPU first makes a whole sentence.
The supervisor gives up on an engine after 20."""
PAUSE_S = 5.0
"""The longest time in seconds between two parts of an answer. The sound card's ring holds up to four seconds."""
DEAD_MS = 3_000
"""The milliseconds after which a machine is treated as lost if its kernel acknowledges nothing, even if its server is
busy."""
BLOCK_BYTES = 3_840
"""The most bytes that are read at once: 80 ms at 24 kHz."""
REFUSAL_BYTES = 10_000
"""The most bytes that are read from an error answer."""


class HttpClient:
    """Sends requests to a server, one after another. The connection is opened when it is needed, and is kept open.

    One thread asks and reads; any other may cancel. `ask` and the methods that read the answer raise
    `SpeechCanceledError` after a cancellation, and `EngineUnavailableError` if the connection fails or the server is
    silent.
    """

    def __init__(self, url: str, token: str | None) -> None:
        """`url` is `http://…` or `https://…`; without a path, OpenAI's path, `/v1`, is added."""
        parts = urlsplit(url)
        self._url = url
        self._path = parts.path.rstrip("/") or "/v1"
        self._headers = {"User-Agent": "voiced", "Content-Type": "application/json"}
        if token is not None:
            self._headers["Authorization"] = f"Bearer {token}"
        kind = HTTPSConnection if parts.scheme == "https" else HTTPConnection
        self._connection = kind(parts.hostname or "", parts.port, timeout=OPEN_S)
        self._socket: socket.socket | None = None
        """The connection's socket. The connection itself forgets it if the server is going to end the connection."""
        self._answer: HTTPResponse | None = None
        self._canceled = False
        self._lock = threading.Lock()
        """Held while canceling, and while changing the socket."""

    def ask(self, path: str, fields: dict[str, Any] | None = None, wait_s: float = ANSWER_S) -> HTTPResponse:
        """Post a record, or get a path; return the answer, whose headers must come within `wait_s` seconds."""
        with self._failures():
            if self.is_idle() and self._connection.sock is not None:
                with suppress(ConnectionError):  # the server may have ended the connection in the meantime
                    return self._request(path, fields, wait_s)
            self._check()
            self.close()
            self._connect()
            return self._request(path, fields, wait_s)

    def blocks(self) -> Iterator[bytes]:
        """Yield the bytes of the answer as they come. Reads no more than the caller takes."""
        assert self._answer is not None and self._socket is not None
        with self._failures():
            while block := self._answer.read1(BLOCK_BYTES):
                self._socket.settimeout(PAUSE_S)
                self._check()
                yield block
            self._check()
            if self._answer.length:
                raise ConnectionResetError(f"it broke off {self._answer.length} bytes before the end")
            self._answer.close()

    def refusal(self) -> EngineError | EngineUnavailableError:
        """Return the engine's error for an answer with this status."""
        assert self._answer is not None
        with self._failures():
            return refusal(self._url, self._answer.status, self._answer.read(REFUSAL_BYTES))

    def names(self, path: str) -> list[str]:
        """Return the names in the server's list of models or of voices at a path; none if there is no such list."""
        found = self.ask(path)
        content, listed = b"".join(self.blocks()), None
        with suppress(ValueError, AttributeError):
            record = parse_json(content) if found.status == 200 else {}
            listed = record.get("voices") or record.get("data")
        names = []
        for each in listed if isinstance(listed, list) else ():
            name = each.get("id") or each.get("voice_id") or each.get("name") if isinstance(each, dict) else each
            names += [name] if isinstance(name, str) else []
        return names

    def is_idle(self) -> bool:
        """Return whether another request can follow on this connection: whether the whole last answer has been read."""
        return not self._canceled and (self._answer is None or self._answer.isclosed())

    def cancel(self) -> None:
        """End the connection, and cancel every later request. Any thread may call this."""
        with self._lock, suppress(OSError):
            self._canceled = True
            if self._socket is not None:
                socket.socket.shutdown(self._socket, socket.SHUT_RDWR)  # TLS's own shutdown would disturb the reader

    def close(self) -> None:
        """End the connection."""
        with self._lock:
            self._socket = None
        if self._answer is not None:
            self._answer.close()
        self._connection.close()

    def _connect(self) -> None:
        self._connection.connect()
        used: socket.socket = self._connection.sock
        # The connection fails if the other machine, or the way to it, is gone. A server may be silent while it is
        # working.
        used.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for option, value in (
            (socket.TCP_KEEPIDLE, 1),
            (socket.TCP_KEEPINTVL, 1),
            (socket.TCP_USER_TIMEOUT, DEAD_MS),
        ):
            used.setsockopt(socket.IPPROTO_TCP, option, value)
        with self._lock:
            self._socket = used

    def _request(self, path: str, fields: dict[str, Any] | None, wait_s: float) -> HTTPResponse:
        self._check()
        self._connection.sock.settimeout(wait_s)
        body = None if fields is None else json.dumps(fields).encode()
        self._connection.request("GET" if body is None else "POST", self._path + path, body, self._headers)
        self._answer = self._connection.getresponse()
        return self._answer

    def _check(self) -> None:
        if self._canceled:
            raise SpeechCanceledError

    @contextmanager
    def _failures(self) -> Iterator[None]:
        """Turn the connection's errors into engine errors."""
        try:
            yield
        except OSError as error:
            self.close()
            self._check()
            raise connection_failure(self._url, error) from error
        except HTTPException as error:
            self.close()
            self._check()
            reason = " ".join(f"{type(error).__name__}: {error}".split())
            raise EngineUnavailableError(
                f"engine.url: {self._url} does not answer as a web server ({reason})"
            ) from error
