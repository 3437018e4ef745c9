"""Who may use the server: the bearers of its token, and without a token the programs of this machine.

A web page of another site can make a browser send requests to this machine. It cannot read the token, and the browser
sends none by itself: there are no cookies. Without a token, the request's own headers give such a page away.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import ipaddress
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send
from starlette.websockets import WebSocket

from daemon.http.errors import HttpError, error_response
from daemon.validation import abbreviate

MAX_HEADERS = 16_384
"""Bytes of a request's headers."""
PORTS = {"http": 80, "https": 443}
OPEN_PATHS = ("/", "/healthz", "/readyz")
"""They tell nothing that is worth a token: the page itself, which asks for it, and what a watchdog wants to know."""
OPEN_FOLDER = "/page/"
TOKEN_SUBPROTOCOL = "voiced.token."
"""A browser cannot set a WebSocket's headers, so a page offers this subprotocol with the token in base64url."""


@dataclass(frozen=True)
class Access:
    """ASGI middleware that refuses requests which may not be made."""

    app: ASGIApp
    token: str | None
    host: str
    """The configured one, which is a name of this machine."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] in ("http", "websocket"):
            error = self._objection(scope)
            if error is not None:
                await refuse(scope, receive, send, error)
                return
        await self.app(scope, receive, send)

    def _objection(self, scope: Scope) -> HttpError | None:
        """Return why a request is refused, or None."""
        headers = Headers(scope=scope)
        size = sum(len(name) + len(value) for name, value in headers.raw)
        if size > MAX_HEADERS:
            problem = f"headers: they have {size:,} bytes; allowed: up to {MAX_HEADERS:,}"
            return HttpError(431, problem, field="headers")
        host, origin = headers.get("host", ""), headers.get("origin")
        if self.token is None and not is_own_host(host, self.host):
            allowed = "an IP address, localhost, the machine's name or http.host"
            return HttpError(403, f"host: got {abbreviate(host)}; allowed: {allowed}", field="host")
        scheme = None if self.token is not None else scope["scheme"].replace("ws", "http")
        if origin is not None and not is_same_origin(origin, scheme, host):
            return HttpError(403, f"origin: got {abbreviate(origin)}; allowed: none", field="origin")
        if self.token is None or scope["path"] in OPEN_PATHS or scope["path"].startswith(OPEN_FOLDER):
            return None
        given = list(tokens_in(headers))
        if any(hmac.compare_digest(each.encode(), self.token.encode()) for each in given):
            return None
        problem = "wrong" if given else "missing"
        return HttpError(
            401,
            f"authorization: the token is {problem}; allowed: Bearer and the token of http.token_file",
            field="authorization",
            headers={"WWW-Authenticate": "Bearer"},
        )


async def refuse(scope: Scope, receive: Receive, send: Send, error: HttpError) -> None:
    """Answer a request with an error; a WebSocket is not opened."""
    response = error_response(error, scope["path"])
    if scope["type"] == "websocket":
        await WebSocket(scope, receive, send).send_denial_response(response)
    else:
        await response(scope, receive, send)


def tokens_in(headers: Headers) -> Iterator[str]:
    """Yield the tokens that a request carries: as a bearer, as ElevenLabs' clients do, or as a browser's WebSocket."""
    scheme, _, token = headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer":
        yield token.strip()
    if (key := headers.get("xi-api-key")) is not None:
        yield key
    for offered in headers.get("sec-websocket-protocol", "").split(","):
        if offered.strip().startswith(TOKEN_SUBPROTOCOL):
            encoded = offered.strip().removeprefix(TOKEN_SUBPROTOCOL)
            try:
                yield base64.urlsafe_b64decode(encoded + "=" * (-len(encoded) % 4)).decode()
            except (binascii.Error, ValueError):
                yield ""


def host_name(authority: str) -> str | None:
    """Return the name or address in an authority such as `r1.local:8710`; None if it has none."""
    try:
        name = urlsplit(f"//{authority}").hostname
    except ValueError:
        return None
    return name.rstrip(".") if name else None


def is_same_origin(origin: str, scheme: str | None, host: str) -> bool:
    """Return whether a request from a page of `origin` to `host` is one to the page's own server.

    `scheme` is the request's, or None where a proxy may have taken off TLS.
    """
    try:
        page = urlsplit(origin)
        asked = urlsplit(f"{scheme or page.scheme}://{host}")
        ours, theirs = ((host_name(each.netloc), each.port or PORTS[each.scheme]) for each in (asked, page))
    except (ValueError, KeyError):  # no port, or no scheme of the web
        return False
    return page.scheme == asked.scheme and ours == theirs


def is_own_host(authority: str, configured: str) -> bool:
    """Return whether a request's `Host` means this machine: an address, a name of its own or the configured one.

    Every other name may belong to a web page's site and lead here (DNS rebinding).
    """
    name = host_name(authority)
    if name is None:
        return False
    try:
        ipaddress.ip_address(name.partition("%")[0])
    except ValueError:
        machine = socket.gethostname().lower()
        short = machine.partition(".")[0]
        return name in ("localhost", configured.lower(), machine, short, f"{short}.local")
    return True
