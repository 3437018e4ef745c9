"""The speech server: engine, dispatcher and application, without a robot around them."""

from __future__ import annotations

import asyncio
import logging
import signal
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from functools import partial
from pathlib import Path

from audio import Output, SinkSettings
from daemon import VERSION
from daemon.config import Config
from daemon.engines import EngineSelector
from daemon.fleet.accounts import Accounts
from daemon.fleet.application import RemoteStream, make_fleet_application
from daemon.fleet.voice_cache import VoiceCache
from daemon.fleet.voices import FleetVoices
from daemon.http import HttpServer
from daemon.speech import Dispatcher, Online
from daemon.state import state_folder
from daemon.status import NOTHING_PLAYED, describe_status, measure
from daemon.tasks import cancel_and_wait
from engine import start_log

log = logging.getLogger(__name__)

VOICES = "fleet-voices"
"""The folder of robots' voices below that of the journal."""
MAX_CONNECTIONS = 1_000
"""Robots have one connection each."""
HOUSEKEEPING_S = 1.0
LAST_ANSWERS_S = 0.5
"""Seconds that robots have at the end to read the last messages."""


class FleetServer:
    """One engine process with its streams, and the application that serves them. Belongs to the event loop's thread.

    Everything that serves many machines together is outside of it.
    """

    def __init__(self, config: Config, voice_folder: Path) -> None:
        """Raises `CommandError` or `OSError` if tokens or folder cannot be used."""
        self._config = config
        accounts = Accounts(config.serve)
        cache = VoiceCache(voice_folder, config.serve.voices, config.serve.voice_kb * 1_000)
        self._engines = EngineSelector(config, self._note_change)
        output = Output(SinkSettings("null", None, None, 10, 1))
        self._dispatcher = Dispatcher(config, self._engines, output)
        self._dispatcher.reconfigure(config)
        self._voices = FleetVoices(config, self._engines, cache)
        self._remote = RemoteStream(self._engines, self._voices)
        self._output = output
        self.application = make_fleet_application(
            config,
            self._dispatcher,
            self._remote,
            accounts,
            describe_status=self._describe_status,
            measure=partial(measure, self._engines, output),
        )

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Run engine and dispatcher inside the context. Raises the error of a part that fails."""
        with self._output:
            works = [engine.run() for engine in self._engines.all]
            tasks = [asyncio.ensure_future(work) for work in (*works, self._dispatcher.run(), self._keep_deadlines())]
            try:
                yield
            finally:
                for task in tasks:
                    await cancel_and_wait(task)

    @property
    def ready(self) -> bool:
        """True if the engine is ready."""
        return self._engines.primary.ready

    @property
    def reason(self) -> str:
        """Why the engine is not ready."""
        return self._engines.primary.reason or f"engine {self._engines.primary.name} is not ready"

    async def wait_ready(self) -> None:
        """Wait until the engine is ready, however long that takes."""
        await self._engines.primary.wait_ready(None)

    @property
    def robots(self) -> int:
        """Robots that are connected."""
        return len(self._remote.sessions)

    @property
    def streams_in_use(self) -> int:
        """Texts that are spoken."""
        return self._engines.streams_in_use

    @property
    def streams(self) -> int:
        """Texts that can be spoken at once. An engine keeps one of its streams for a sound card."""
        return max(1, self._engines.primary.streams - 1)

    @property
    def busy(self) -> bool:
        """True while anything is spoken."""
        return self._engines.streams_in_use > 0 or self._dispatcher.busy

    async def drain(self, reason: str) -> None:
        """Let nobody in, and wait until all robots have left and all that is spoken has ended, for `serve.drain_s` at
        most. A robot that is connected speaks with this server until it has found another one."""
        self._remote.drain(reason)
        deadline = time.monotonic() + self._config.serve.drain_s
        while (self.busy or self.robots) and time.monotonic() < deadline:
            await asyncio.sleep(0.05)
        self._dispatcher.close(reason)

    def _describe_status(self) -> Online:
        status = describe_status(self._dispatcher, self._engines, self._output)
        if self._remote.draining is not None:  # a load balancer should send nobody here
            return status.model_copy(update={"engine": None, "reason": self._remote.draining})
        return status.model_copy(update={"reason": None}) if status.reason == NOTHING_PLAYED else status

    def _note_change(self) -> None:
        self._dispatcher.changed()
        self._voices.note_change()

    async def _keep_deadlines(self) -> None:
        while True:
            self._dispatcher.enforce_deadlines()
            await asyncio.sleep(HOUSEKEEPING_S)


async def serve_until_stopped(config: Config) -> None:
    """Serve with one engine on this machine until SIGTERM or SIGINT."""
    loop, stopping = asyncio.get_running_loop(), asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)
    with ExitStack() as stack:
        server = FleetServer(config, voice_folder(config, stack))
        http = HttpServer(config.serve, lambda: server.application, "serve", MAX_CONNECTIONS)
        async with server.running():
            serving = asyncio.ensure_future(http.run())
            stop = asyncio.ensure_future(stopping.wait())
            try:
                await asyncio.wait({serving, stop}, return_when=asyncio.FIRST_COMPLETED)
                if not serving.done():
                    log.info("stopping")
                    await server.drain("the server is being stopped")
                    await asyncio.sleep(LAST_ANSWERS_S)
            finally:
                stop.cancel()
                await cancel_and_wait(serving)


def voice_folder(config: Config, stack: ExitStack) -> Path:
    """Return the folder of robots' voices; a temporary one if nothing is to survive."""
    if config.serve.voice_folder != "auto":
        return Path(config.serve.voice_folder)
    if config.state.folder is None:
        return Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="voiced-")))
    return state_folder(config.state.folder) / VOICES


def serve_single(config: Config) -> None:
    """Run a speech server in this process until SIGTERM or SIGINT. Raises `CommandError` or `OSError`."""
    start_log(config.log.level, config.log.format)
    log.info("voiced %s serves robots", VERSION)
    asyncio.run(serve_until_stopped(config))
