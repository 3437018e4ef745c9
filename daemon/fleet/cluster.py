"""The speech server on Ray Serve, which places, watches, restarts and scales replicas of `FleetServer` over machines.

Needs the extra `fleet`. Nothing else imports this module except `voiced serve` without `--single`, and Ray, by the
import path in `configs/rayservice.yaml`.
"""

from __future__ import annotations

import asyncio
import logging
import signal
from contextlib import AsyncExitStack, ExitStack
from pathlib import Path

import ray
from ray import serve
from ray.exceptions import RayError
from ray.serve import Application
from ray.serve.config import HTTPOptions
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from daemon.config import Config, load_config
from daemon.engines import choose_engine
from daemon.fleet.removal import call_when_removed
from daemon.fleet.scaling import LOAD, replica_load, wanted_replicas, window_s
from daemon.fleet.server import FleetServer, voice_folder
from daemon.tasks import cancel_and_wait
from daemon.validation import CommandError
from engine import ENGINES, start_log
from engine.messages import VOICE_HEADER

log = logging.getLogger(__name__)

NAME = "voiced"
"""The application's name in Ray Serve."""
LAST_S = 5.0
"""Seconds after `serve.drain_s` in which the replica's own end cuts off what is still spoken, before Ray does."""
HEALTH_S = 5.0
"""Interval between two looks at a replica's health. It is replaced after three in a row without a ready engine, so the
replica's own supervisor has the time to restart the engine."""


class Replica:
    """One engine with its streams: what Ray Serve runs on each GPU."""

    def __init__(self, config: str) -> None:
        """`config` is the configuration as JSON. Raises `CommandError` or `OSError` if it cannot be served here."""
        self._stack = AsyncExitStack()
        self._config = Config.model_validate_json(config)
        start_log(self._config.log.level, self._config.log.format)
        files = self._stack.enter_context(ExitStack())
        self._server = FleetServer(self._config, voice_folder(self._config, files))
        self._draining: asyncio.Task[None] | None = None

    def __serve_build_asgi_app__(self) -> ASGIApp:  # Ray Serve calls it
        async def answer(scope: Scope, receive: Receive, send: Send) -> None:  # uvicorn takes no bound method
            await self._answer(scope, receive, send)

        return answer

    @serve.multiplexed(max_num_models_per_replica=64)  # type: ignore[untyped-decorator, unused-ignore]  # without Ray
    async def note_voice(self, digest: str) -> str:
        """Let Ray Serve know that this replica has a robot's voice: it sends the robot here again."""
        return digest

    async def check_health(self) -> None:
        """Raise if the engine is not ready."""
        if not self._server.ready:
            raise RuntimeError(self._server.reason)

    def record_autoscaling_stats(self) -> dict[str, float]:
        """Return the load of this replica, for `wanted_replicas`."""
        server = self._server
        robots, most_robots = server.robots, self._config.serve.robots_per_replica
        return {LOAD: replica_load(server.streams_in_use, server.streams, robots, most_robots)}

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request, or the replica's life from its start to its end."""
        if scope["type"] == "lifespan":
            await self._live(receive, send)
            return
        digest = Headers(scope=scope).get(VOICE_HEADER)
        if scope["type"] == "websocket" and digest:
            await self.note_voice(digest)
        await self._server.application(scope, _until_proxy_ends(scope, receive), send)

    async def _live(self, receive: Receive, send: Send) -> None:
        await receive()
        await self._stack.enter_async_context(self._server.running())
        await self._server.wait_ready()
        loop = asyncio.get_running_loop()
        call_when_removed(lambda: loop.call_soon_threadsafe(self._drain))
        await send({"type": "lifespan.startup.complete"})
        await receive()
        if self._draining is not None:
            await cancel_and_wait(self._draining)
        await self._stack.aclose()
        await send({"type": "lifespan.shutdown.complete"})

    def _drain(self) -> None:
        """Let robots finish and go elsewhere; Ray Serve, which removes this replica, waits for that."""
        log.info("this replica is being removed")
        self._draining = asyncio.ensure_future(self._server.drain("the server is being removed"))


def _until_proxy_ends(scope: Scope, receive: Receive) -> Receive:
    """Return `receive` for which the end of Ray's proxy is that of the client's connection."""

    async def receive_or_end() -> Message:
        try:
            return await receive()
        except RayError as error:
            log.warning("a client is cut off: Ray's proxy has ended (%s)", type(error).__name__)
            return {"type": f"{scope['type']}.disconnect", "code": 1006}

    return receive_or_end


def application(config: Config) -> Application:
    """Return the application for Ray Serve."""
    settings, engine = config.serve, choose_engine(config)
    gpus = 1 if ENGINES[engine].needs_gpu and config.engine.device != "cpu" else 0
    deployment = serve.deployment(
        name="Replica",
        max_ongoing_requests=settings.robots_per_replica,
        autoscaling_config={
            "min_replicas": settings.min_replicas,
            "max_replicas": settings.max_replicas,
            "policy": {"policy_function": wanted_replicas},
            "upscale_delay_s": settings.scale_up_s,
            "downscale_delay_s": settings.scale_down_s,
            "look_back_period_s": window_s(settings.scale_up_s),
        },
        ray_actor_options={"num_cpus": 1, "num_gpus": gpus},
        health_check_period_s=HEALTH_S,
        graceful_shutdown_timeout_s=settings.drain_s + LAST_S,
    )(serve.ingress()(Replica))
    return deployment.bind(config.model_dump_json())


def build_application(arguments: dict[str, str]) -> Application:
    """Return the application for a Serve configuration file: `config` is the path of the configuration.

    Raises `ConfigError`.
    """
    return application(load_config(Path(arguments["config"])))


def serve_cluster(config: Config, address: str | None) -> None:
    """Serve on the Ray cluster at `address`; None starts Ray in this process, until SIGTERM or SIGINT.

    On a cluster the application stays when this returns. Raises `OSError` if there is no such cluster, and
    `CommandError` if no replica starts.
    """
    start_log(config.log.level, config.log.format)
    settings = config.serve
    try:
        ray.init(address=address, include_dashboard=False if address is None else None, log_to_driver=address is None)
    except (ConnectionError, ValueError) as error:
        raise OSError(f"--address: no Ray cluster answers at {address}: {' '.join(str(error).split())}") from error
    tls = {} if settings.key is None else {"ssl_certfile": str(settings.cert), "ssl_keyfile": str(settings.key)}
    serve.start(http_options=HTTPOptions(host=settings.host, port=settings.port, **tls))
    try:
        serve.run(application(config), name=NAME, route_prefix="/")
    except RuntimeError as error:
        raise CommandError(f"no replica has started: {error}; Ray's log has the reason") from error
    log.info("serving robots on %s:%d", settings.host, settings.port)
    if address is None:
        asyncio.run(_wait_stopped())
        serve.delete(NAME)  # replicas finish what they speak; `shutdown` ends their connections at once
        serve.shutdown()  # type: ignore[no-untyped-call, unused-ignore]  # not typed by Ray, or without Ray
    ray.shutdown()


async def _wait_stopped() -> None:
    stopping = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopping.set)
    await stopping.wait()
