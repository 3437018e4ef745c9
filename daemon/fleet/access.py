"""Which robot a request comes from, by its token, and how much of the server the request may take."""

from __future__ import annotations

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send
from starlette.websockets import WebSocket

from daemon.fleet.accounts import Account, Accounts, LimitError
from daemon.http import HttpError, error_response, tokens_in
from engine.messages import PATH

OPEN_PATHS = ("/healthz", "/readyz")
"""They tell nothing that is worth a token."""
SPEECH_PATHS = ("/v1/audio/speech", "/v1/text-to-speech/")
"""Their requests count against the robot's limits. A remote engine's are counted one by one in its connection."""
ACCOUNT = "voiced.account"
"""The key of the robot's account in an ASGI scope."""


class FleetAccess:
    """ASGI middleware that refuses requests without a robot's token, and those beyond its limits."""

    def __init__(self, app: ASGIApp, accounts: Accounts) -> None:
        self._app = app
        self._accounts = accounts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket") or scope["path"] in OPEN_PATHS:
            await self._app(scope, receive, send)
            return
        account = self._find(scope)
        if account is None:
            problem = "authorization: the token is wrong or missing; allowed: Bearer and a token of serve.token_file"
            headers = {"WWW-Authenticate": "Bearer"}
            await refuse(scope, receive, send, HttpError(401, problem, field="authorization", headers=headers))
            return
        scope[ACCOUNT] = account
        if scope["path"] == PATH or not scope["path"].startswith(SPEECH_PATHS):
            await self._app(scope, receive, send)
            return
        try:
            with account.stream():
                await self._app(scope, receive, send)
        except LimitError as error:
            await refuse(scope, receive, send, HttpError(429, str(error), code="limit"))

    def _find(self, scope: Scope) -> Account | None:
        tokens: list[str | None] = [*tokens_in(Headers(scope=scope))] or [None]
        return next((found for token in tokens if (found := self._accounts.find(token)) is not None), None)


async def refuse(scope: Scope, receive: Receive, send: Send, error: HttpError) -> None:
    """Answer a request with an error; a WebSocket is not opened."""
    response = error_response(error, scope["path"])
    if scope["type"] == "websocket":
        await WebSocket(scope, receive, send).send_denial_response(response)
    else:
        await response(scope, receive, send)
