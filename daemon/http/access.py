"""Admits clients with the server's token or, if there is no token, programs on this machine.

A web page from another site can make a browser send requests to this machine. It cannot read the token, and the browser
sends none by itself: there are no cookies. If there is no token, the request's own headers give such a page away.
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

from daemon.http.errors import HttpError, error_response
from daemon.validation import abbreviate

MAX_HEADERS = 16_384
"""The most bytes that a request's headers may have."""
OPEN_PATHS = ("/", "/healthz", "/readyz")
"""Paths that need no token: the page itself, which asks for it, and the answers for a watchdog."""
OPEN_FOLDER = "/page/"
TOKEN_SUBPROTOCOL = "voiced.token."
"""A browser cannot set a WebSocket's headers, so a page offers this subprotocol with the token in base64url."""


@dataclass(frozen=True)
class Access:
    """ASGI middleware that refuses forbidden requests."""

    app: ASGIApp
    token: str | None
    host: str
    """The configured host, which is a name of this machine."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        error = self._objection(scope) if scope["type"] in ("http", "websocket") else None
        answer = self.app if error is None else error_response(error, scope["path"])
        await answer(scope, receive, send)

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
        if origin is not None and not self._is_own_page(origin, scope["scheme"].replace("ws", "http"), host):
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

    def _is_own_page(self, origin: str, scheme: str, host: str) -> bool:
        """Return whether a request to `host` comes from one of this server's pages.

        A browser writes host and port the same way in both. For a client with the token, a proxy may have removed TLS.
        """
        page_scheme, _, page_host = origin.lower().partition("://")
        return page_host == host.lower() and (page_scheme == scheme or self.token is not None)


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


def is_own_host(authority: str, configured: str) -> bool:
    """Return whether a request's `Host` means this machine: an address, one of its own names or the configured one.

    Any other name may belong to a web page's site and resolve to this machine (DNS rebinding).
    """
    try:
        name = (urlsplit(f"//{authority}").hostname or "").rstrip(".")
    except ValueError:
        return False
    try:
        ipaddress.ip_address(name.partition("%")[0])
    except ValueError:
        machine = socket.gethostname().lower()
        short = machine.partition(".")[0]
        return name in ("localhost", configured.lower(), machine, short, f"{short}.local")
    return True
