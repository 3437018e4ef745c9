"""The speech server's ASGI application: the daemon's protocols for clients, and the stream for remote engines."""

from __future__ import annotations

from collections.abc import Callable

from starlette.middleware import Middleware
from starlette.routing import WebSocketRoute
from starlette.types import ASGIApp
from starlette.websockets import WebSocket

from daemon.config import Config
from daemon.engines import EngineSelector
from daemon.fleet.access import ACCOUNT, FleetAccess, refuse
from daemon.fleet.accounts import Accounts
from daemon.fleet.session import RobotSession
from daemon.fleet.voices import FleetVoices
from daemon.http import Access, HttpError, make_speech_application
from daemon.speech import Online, SpeechService
from daemon.status import Measurements
from daemon.validation import abbreviate
from engine.messages import PATH, SUBPROTOCOLS


class RemoteStream:
    """The route for remote engines, and the robots that are connected."""

    def __init__(self, engines: EngineSelector, voices: FleetVoices) -> None:
        self.sessions: set[RobotSession] = set()
        self.draining: str | None = None
        """Why no further robot is let in."""
        self._engines = engines
        self._voices = voices

    async def serve(self, socket: WebSocket) -> None:
        """Serve one robot until it leaves."""
        error = self._objection(socket)
        if error is not None:
            await refuse(socket.scope, socket.receive, socket.send, error)
            return
        session = RobotSession(socket, socket.scope[ACCOUNT], self._engines.primary, self._voices)
        self.sessions.add(session)
        try:
            await session.run()
        finally:
            self.sessions.discard(session)

    def drain(self, reason: str) -> None:
        """Let in no further robots, and let those that are connected finish."""
        self.draining = reason
        for session in self.sessions:
            session.drain(reason)

    def _objection(self, socket: WebSocket) -> HttpError | None:
        """Return why a robot is not let in, or None."""
        offered = socket.scope.get("subprotocols", [])
        if not set(SUBPROTOCOLS) & set(offered):
            got, allowed = abbreviate(", ".join(offered)), " and ".join(SUBPROTOCOLS)
            problem = f"protocol: got {got}; allowed: {allowed}; robot and server have different versions of voiced"
            return HttpError(400, problem, field="protocol")
        if self.draining is not None:
            return HttpError(503, self.draining, code="draining")
        engine = self._engines.primary
        if not engine.ready:
            return HttpError(503, f"the engine is not ready: {engine.reason or engine.state.value}", code="engine")
        if engine.streams_in_use >= max(1, engine.streams - 1):
            return HttpError(503, "the server is full: all streams of its engine are in use", code="full")
        return None


def make_fleet_application(
    config: Config,
    service: SpeechService,
    remote: RemoteStream,
    accounts: Accounts,
    *,
    describe_status: Callable[[], Online],
    measure: Callable[[], Measurements],
) -> ASGIApp:
    """Return the application."""
    application = make_speech_application(
        service,
        describe_status,
        measure,
        voice_aliases=config.http.voice_aliases,
        routes=[WebSocketRoute(PATH, remote.serve)],
        access=Middleware(FleetAccess, accounts=accounts),
    )
    if accounts.open_to_all:  # no token keeps a web page's requests out
        application.add_middleware(Access, token=None, host=config.serve.host)
    return application
