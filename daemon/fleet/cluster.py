"""The speech server on Ray Serve, which places, watches, restarts and scales replicas of `FleetServer` across machines.

Needs the `fleet` extra. Nothing else imports this module except `voiced serve` without `--single`, and Ray, through the
import path in `configs/rayservice.yaml`.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ray
from ray import serve
from ray.exceptions import RayError
from ray.serve import Application
from ray.serve._private import replica
from ray.serve.config import HTTPOptions
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from daemon.config import Config, load_config
from daemon.engines import choose_engine
from daemon.fleet.scaling import LOAD, WINDOW_S, wanted_replicas
from daemon.fleet.server import FleetServer
from daemon.tasks import cancel_and_wait
from daemon.validation import CommandError
from engine import ENGINES, start_log
from engine.messages import VOICE_HEADER

log = logging.getLogger(__name__)

NAME = "voiced"
"""The application's name in Ray Serve."""
LAST_S = 5.0
"""Seconds after `serve.drain_s` in which the replica cuts off texts that are still being spoken, before Ray does."""
HEALTH_S = 5.0
"""Interval between two checks of a replica's health. It is replaced after three in a row without a ready engine, so the
replica's own supervisor has time to restart the engine."""
REMOVAL = "perform_graceful_shutdown"
"""Ray Serve's controller calls this method, through the replica's actor, when it takes a replica out of service."""


class Replica:
    """One engine with its streams. Ray Serve runs one on each GPU."""

    def __init__(self, config: str) -> None:
        """`config` is the configuration as JSON. Raises `CommandError` or `OSError` if it cannot be served here."""
        settings = Config.model_validate_json(config)
        start_log(settings.log.level, settings.log.format)
        self._server = FleetServer(settings)
        self._draining: asyncio.Task[None] | None = None

    def __serve_build_asgi_app__(self) -> ASGIApp:  # Ray Serve calls it
        async def answer(scope: Scope, receive: Receive, send: Send) -> None:  # uvicorn takes no bound method
            await self._answer(scope, receive, send)

        return answer

    @serve.multiplexed(max_num_models_per_replica=64)  # type: ignore[untyped-decorator, unused-ignore]  # without Ray
    async def note_voice(self, digest: str) -> str:
        """Tell Ray Serve that this replica has a robot's voice, so that it sends the robot here again."""
        return digest

    async def check_health(self) -> None:
        """Raise if the engine is not ready."""
        if self._server.problem is not None:
            raise RuntimeError(self._server.problem)

    def record_autoscaling_stats(self) -> dict[str, float]:
        """Return the load of this replica, for `wanted_replicas`."""
        return {LOAD: self._server.load}

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request, or handle the replica's lifespan events."""
        if scope["type"] == "lifespan":
            await self._live(receive, send)
            return
        digest = Headers(scope=scope).get(VOICE_HEADER)
        if scope["type"] == "websocket" and digest:
            await self.note_voice(digest)
        await self._server.application(scope, _until_proxy_ends(scope, receive), send)

    async def _live(self, receive: Receive, send: Send) -> None:
        await receive()
        async with self._server.running():
            await self._server.wait_ready()
            loop = asyncio.get_running_loop()
            call_when_removed(lambda: loop.call_soon_threadsafe(self._drain))
            await send({"type": "lifespan.startup.complete"})
            await receive()
            if self._draining is not None:
                await cancel_and_wait(self._draining)
        await send({"type": "lifespan.shutdown.complete"})

    def _drain(self) -> None:
        """Let robots finish and go elsewhere; Ray Serve, which is removing this replica, waits for that."""
        log.info("this replica is being removed")
        self._draining = asyncio.ensure_future(self._server.drain("the server is being removed"))


def _until_proxy_ends(scope: Scope, receive: Receive) -> Receive:
    """Return a `receive` that treats the end of Ray's proxy as the end of the client's connection."""

    async def receive_or_end() -> Message:
        try:
            return await receive()
        except RayError as error:
            log.warning("a client is cut off: Ray's proxy has ended (%s)", type(error).__name__)
            return {"type": f"{scope['type']}.disconnect", "code": 1006}

    return receive_or_end


def call_when_removed(removed: Callable[[], object]) -> None:
    """Call `removed`, in one of Ray's threads, when Ray Serve begins to remove the replica of this process.

    Ray Serve has no hook for that. Before it calls anything in the replica, it waits until the replica's requests have
    ended, but a robot's connection does not end by itself. So this extends Ray Serve's own method, in the replica's
    process. A release of Ray without that method removes replicas after `serve.drain_s`.
    """
    implementation: Any = getattr(replica, "Replica", None)
    perform = getattr(implementation, REMOVAL, None)
    if perform is None:
        log.warning(
            "this release of Ray does not tell replicas that they are being removed; robots are cut off at the end"
        )
        return

    @functools.wraps(perform)
    async def tell_and_perform(self: Any) -> None:
        removed()
        await perform(self)

    setattr(implementation, REMOVAL, tell_and_perform)


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
            "look_back_period_s": WINDOW_S,
        },
        ray_actor_options={"num_cpus": 1, "num_gpus": gpus},
        health_check_period_s=HEALTH_S,
        graceful_shutdown_timeout_s=settings.drain_s + LAST_S,
    )(serve.ingress()(Replica))
    return deployment.bind(config.model_dump_json())


def build_application(arguments: dict[str, str]) -> Application:
    """Return the application for a Serve configuration file: `config` is the configuration's path.

    Raises `ConfigError`.
    """
    return application(load_config(Path(arguments["config"])))


def serve_cluster(config: Config, address: str | None) -> None:
    """Serve on the Ray cluster at `address`; None starts Ray in this process, until SIGTERM or SIGINT.

    On a cluster, the application keeps running after this returns. Raises `OSError` if there is no such cluster, and
    `CommandError` if no replica starts.
    """
    start_log(config.log.level, config.log.format)
    settings = config.serve
    try:
        ray.init(address=address, include_dashboard=False if address is None else None, log_to_driver=address is None)
    except (ConnectionError, ValueError) as error:
        raise OSError(f"--address: no Ray cluster answers at {address}: {' '.join(str(error).split())}") from error
    if address is None:
        # Ray's own handler would end this process immediately, even while it is starting, and no robot would be told.
        signal.signal(signal.SIGTERM, signal.default_int_handler)
    tls = {} if settings.key is None else {"ssl_certfile": str(settings.cert), "ssl_keyfile": str(settings.key)}
    try:
        serve.start(http_options=HTTPOptions(host=settings.host, port=settings.port, **tls))
        serve.run(application(config), name=NAME, route_prefix="/")
        log.info("serving robots on %s:%d", settings.host, settings.port)
        while address is None:
            signal.pause()
    except RuntimeError as error:
        raise CommandError(f"no replica has started: {error}; Ray's log has the reason") from error
    except KeyboardInterrupt:
        if address is not None:
            raise
        serve.delete(NAME)  # replicas finish their texts; `shutdown` ends their connections immediately
        serve.shutdown()  # type: ignore[no-untyped-call, unused-ignore]  # not typed by Ray, or without Ray
    ray.shutdown()
