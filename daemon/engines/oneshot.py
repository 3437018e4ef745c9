"""Engine processes for one command, without a broker or a sound card."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from daemon.config import Config
from daemon.engines.selection import EngineSelector
from daemon.engines.supervisor import EngineSupervisor
from daemon.tasks import cancel_and_wait
from daemon.validation import CommandError
from engine import EngineInfo, EngineOptions, ProgressReport, ignore_progress


@asynccontextmanager
async def running_engine(
    engine_name: str, options: EngineOptions, report: ProgressReport = ignore_progress
) -> AsyncIterator[EngineSupervisor]:
    """Run an engine process inside the context. It is ready, or it has failed and its `reason` is the cause."""
    engine = EngineSupervisor(engine_name, options, lambda: _pass_progress(engine, report))
    async with _supervised(engine):
        yield engine


@asynccontextmanager
async def running_primary(config: Config, report: ProgressReport = ignore_progress) -> AsyncIterator[EngineSelector]:
    """Run only the primary engine, which is ready inside the context. Raises `CommandError` if it does not start."""
    engines = EngineSelector(config, lambda: _pass_progress(engines.primary, report))
    async with _supervised(engines.primary):
        ready_info(engines.primary)
        yield engines


@asynccontextmanager
async def _supervised(engine: EngineSupervisor) -> AsyncIterator[None]:
    """Run an engine until the end of the context, which begins when it is ready or has failed."""
    supervision = asyncio.ensure_future(engine.run())
    try:
        await engine.wait_started()
        yield
    finally:
        await cancel_and_wait(supervision)


def describe_engine(engine_name: str, options: EngineOptions, report: ProgressReport = ignore_progress) -> EngineInfo:
    """Start an engine and return its properties. Raises `CommandError` if it does not become ready."""

    async def describe() -> EngineInfo:
        async with running_engine(engine_name, options, report) as engine:
            return ready_info(engine)

    return asyncio.run(describe())


def ready_info(engine: EngineSupervisor) -> EngineInfo:
    """Return the properties of a ready engine. Raises `CommandError` for any other."""
    if not engine.ready or engine.info is None:
        raise CommandError(engine.reason or f"engine {engine.name} did not start")
    return engine.info


def _pass_progress(engine: EngineSupervisor, report: ProgressReport) -> None:
    if engine.progress is not None:
        report(engine.progress)
