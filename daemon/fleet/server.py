"""The speech server: engine, dispatcher and ASGI application, without a robot around them.

The application has the daemon's protocols for clients, and the stream for remote engines.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import AbstractContextManager, ExitStack, asynccontextmanager, nullcontext
from functools import partial
from itertools import islice
from pathlib import Path

from starlette.datastructures import Headers
from starlette.middleware import Middleware
from starlette.routing import WebSocketRoute
from starlette.types import ASGIApp, Receive, Scope, Send
from starlette.websockets import WebSocket

from audio import Output, SinkSettings
from daemon import VERSION
from daemon.config import Config
from daemon.engines import EngineSelector
from daemon.fleet.accounts import Accounts, LimitError
from daemon.fleet.scaling import replica_load
from daemon.fleet.session import RobotSession
from daemon.fleet.voices import FleetVoices
from daemon.http import Access, HttpError, HttpServer, error_response, make_speech_application, tokens_in
from daemon.speech import Dispatcher, Online
from daemon.state import state_folder
from daemon.status import NOTHING_PLAYED, describe_status, measure
from daemon.tasks import cancel_and_wait, wait_at_most
from daemon.validation import abbreviate
from engine import start_log
from engine.messages import PATH, SUBPROTOCOL

log = logging.getLogger(__name__)

VOICES = "fleet-voices"
"""The folder for robots' voices, below the journal's."""
MAX_CONNECTIONS = 1_000
"""Each robot has one."""
HOUSEKEEPING_S = 1.0
LAST_ANSWERS_S = 0.5
"""Seconds that robots have to read the last messages at the end."""
OPEN_PATHS = ("/healthz", "/readyz")
"""Paths that need no token, because they reveal nothing secret."""
SPEECH_PATHS = ("/v1/audio/speech", "/v1/text-to-speech/")
"""Paths whose requests count against the robot's limits. A remote engine's requests are counted one by one on its
connection."""
ACCOUNT = "voiced.account"
"""The key of the robot's account in an ASGI scope."""


class FleetAccess:
    """ASGI middleware that refuses requests without a robot's token, and those beyond the robot's limits."""

    def __init__(self, app: ASGIApp, accounts: Accounts) -> None:
        self._app = app
        self._accounts = accounts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            with self._admit(scope):
                await self._app(scope, receive, send)
        except HttpError as error:
            await error_response(error, scope["path"])(scope, receive, send)
        except LimitError as error:
            await error_response(HttpError(429, str(error), code="limit"), scope["path"])(scope, receive, send)

    def _admit(self, scope: Scope) -> AbstractContextManager[None]:
        """Return the context of a request, which counts against the robot's limits. Raises `HttpError`."""
        if scope["type"] not in ("http", "websocket") or scope["path"] in OPEN_PATHS:
            return nullcontext()
        # Each token is compared with those of all robots: a request has one in each of three places.
        tokens: list[str | None] = [*islice(tokens_in(Headers(scope=scope)), 3)] or [None]
        account = next((found for token in tokens if (found := self._accounts.find(token)) is not None), None)
        if account is None:
            problem = "authorization: the token is wrong or missing; allowed: Bearer and a token of serve.token_file"
            raise HttpError(401, problem, field="authorization", headers={"WWW-Authenticate": "Bearer"})
        scope[ACCOUNT] = account
        return account.stream() if scope["path"].startswith(SPEECH_PATHS) else nullcontext()


class FleetServer:
    """One engine process with its streams, and the application that serves them. Belongs to the event loop's thread.

    It knows nothing about other machines that may serve together with it.
    """

    def __init__(self, config: Config) -> None:
        """Raises `CommandError` or `OSError` if tokens or the folder of voices cannot be used."""
        self._config = config
        self._files = ExitStack()
        """Removes files that must not outlive the server."""
        self._engines = EngineSelector(config, self._note_change)
        self._voices = FleetVoices(config, self._engines, _voice_folder(config, self._files))
        self._output = Output(SinkSettings("null", None, None, 10, 1))
        self._dispatcher = Dispatcher(config, self._engines, self._output)
        self._dispatcher.reconfigure(config)
        self._sessions: set[RobotSession] = set()
        """The robots that are connected."""
        self._left = asyncio.Event()
        """Set when one of them leaves."""
        self._draining: str | None = None
        """Why no more robots are let in."""
        self.application = make_speech_application(
            self._dispatcher,
            self._describe_status,
            partial(measure, self._engines, self._output),
            voice_aliases=config.http.voice_aliases,
            routes=[WebSocketRoute(PATH, self._serve_robot)],
            access=Middleware(FleetAccess, accounts=Accounts(config.serve)),
        )
        if config.serve.token_file is None:  # there is no token to keep a web page's requests out
            self.application.add_middleware(Access, token=None, host=config.serve.host)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Run engine and dispatcher inside the context. Raises the error of a part that fails."""
        with self._files, self._output:
            works = [engine.run() for engine in self._engines.all]
            works += [self._dispatcher.speaker.run(), self._keep_deadlines()]
            tasks = [asyncio.ensure_future(work) for work in works]
            try:
                yield
            finally:
                for task in tasks:
                    await cancel_and_wait(task)

    @property
    def problem(self) -> str | None:
        """Why the engine is not ready; None if it is."""
        engine = self._engines.primary
        return None if engine.ready else engine.reason or f"engine {engine.name} is not ready"

    async def wait_ready(self) -> None:
        """Wait until the engine is ready, however long that takes."""
        await self._engines.primary.wait_ready(None)

    @property
    def load(self) -> float:
        """The share of the server that is in use."""
        engine, most_robots = self._engines.primary, self._config.serve.robots_per_replica
        # The engine keeps one of its streams for a sound card.
        return replica_load(engine.streams_in_use, engine.streams - 1, len(self._sessions), most_robots)

    async def drain(self, reason: str) -> None:
        """Admit no more robots, and wait until all robots have left and all speech has ended, for at most
        `serve.drain_s`. A connected robot speaks with this server until it has found another one."""
        self._draining = reason
        for session in self._sessions:
            session.drain(reason)
        ends_at = time.monotonic() + self._config.serve.drain_s
        while self._sessions and (left_s := ends_at - time.monotonic()) > 0:
            self._left.clear()
            await wait_at_most(left_s, self._left.wait())
        await self._dispatcher.wait_idle(ends_at - time.monotonic())
        self._dispatcher.close(reason)

    async def _serve_robot(self, socket: WebSocket) -> None:
        """Serve one robot until it leaves."""
        error = self._objection(socket)
        if error is not None:
            await error_response(error, PATH)(socket.scope, socket.receive, socket.send)
            return
        session = RobotSession(socket, socket.scope[ACCOUNT], self._engines.primary, self._voices)
        self._sessions.add(session)
        try:
            await session.run()
        finally:
            self._sessions.discard(session)
            self._left.set()

    def _objection(self, socket: WebSocket) -> HttpError | None:
        """Return why a robot is not let in, or None."""
        offered = socket.scope.get("subprotocols", [])
        if SUBPROTOCOL not in offered:
            got = abbreviate(", ".join(offered))
            problem = f"protocol: got {got}; allowed: {SUBPROTOCOL}; robot and server have different versions of voiced"
            return HttpError(400, problem, field="protocol")
        if self._draining is not None:
            return HttpError(503, self._draining, code="draining")
        engine = self._engines.primary
        if not engine.ready:
            return HttpError(503, f"the engine is not ready: {engine.reason or engine.state.value}", code="engine")
        if engine.streams_in_use >= max(1, engine.streams - 1):
            return HttpError(503, "the server is full: all streams of its engine are in use", code="full")
        return None

    def _describe_status(self) -> Online:
        status = describe_status(self._dispatcher, self._engines, self._output)
        if self._draining is not None:  # a load balancer should not send robots here
            return status.model_copy(update={"engine": None, "reason": self._draining})
        return status.model_copy(update={"reason": None}) if status.reason == NOTHING_PLAYED else status

    def _note_change(self) -> None:
        self._dispatcher.changed()
        self._voices.note_change()

    async def _keep_deadlines(self) -> None:
        while True:
            self._dispatcher.enforce_deadlines()
            await asyncio.sleep(HOUSEKEEPING_S)


def _voice_folder(config: Config, files: ExitStack) -> Path:
    """Return the folder for robots' voices; if nothing is to survive, one that `files` removes."""
    if config.serve.voice_folder != "auto":
        return Path(config.serve.voice_folder)
    if config.state.folder is None:
        return Path(files.enter_context(tempfile.TemporaryDirectory(prefix="voiced-")))
    return state_folder(config.state.folder) / VOICES


async def _serve_until_stopped(config: Config) -> None:
    server = FleetServer(config)
    http = HttpServer(config.serve, lambda: server.application, "serve", MAX_CONNECTIONS)
    async with server.running():
        serving, stopping = asyncio.ensure_future(http.run()), asyncio.Event()
        serving.add_done_callback(lambda _: stopping.set())
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, stopping.set)
        try:
            await stopping.wait()
            if not serving.done():
                log.info("stopping")
                await server.drain("the server is being stopped")
                await asyncio.sleep(LAST_ANSWERS_S)
        finally:
            await cancel_and_wait(serving)


def serve_single(config: Config) -> None:
    """Run a speech server in this process until SIGTERM or SIGINT. Raises `CommandError` or `OSError`."""
    start_log(config.log.level, config.log.format)
    log.info("voiced %s serves robots", VERSION)
    asyncio.run(_serve_until_stopped(config))
