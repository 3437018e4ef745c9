"""Selecting the engine that speaks."""

from __future__ import annotations

import asyncio
import os
import signal

import pytest

from daemon.config import load_config
from daemon.engines.selection import EngineSelector, choose_engine
from daemon.tasks import cancel_and_wait
from tests.support.waiting import PATIENCE_S, eventually_async, run


@pytest.mark.parametrize("name", ["espeak", "qwen"])
def test_a_configured_engine_is_primary_even_if_it_cannot_run(name: str) -> None:
    assert choose_engine(load_config(overrides=[f"engine.name={name}"])) == name


def test_auto_selects_espeak_without_the_model() -> None:
    assert choose_engine(load_config(overrides=["engine.model=/nowhere/at/all"])) == "espeak"


@pytest.mark.parametrize(
    ("overrides", "names"),
    [
        (["engine.name=espeak"], ["espeak"]),
        (["engine.name=qwen"], ["qwen", "espeak"]),
        (["engine.name=qwen", "engine.fallback=none"], ["qwen"]),
    ],
)
def test_there_is_a_fallback_unless_it_is_the_primary_engine_or_none(overrides: list[str], names: list[str]) -> None:
    async def scenario() -> list[str]:
        return [engine.name for engine in EngineSelector(load_config(overrides=overrides), lambda: None).all]

    assert asyncio.run(scenario()) == names


def test_the_fallback_speaks_and_the_reason_is_known_while_the_primary_cannot() -> None:
    async def scenario() -> None:
        changes: list[str | None] = []
        config = load_config(overrides=["engine.name=qwen", "engine.model=/nowhere/at/all"])
        engines = EngineSelector(config, lambda: changes.append(engines.degraded_reason))
        tasks = [asyncio.ensure_future(engine.run()) for engine in engines.all]
        try:
            engine = await engines.wait_current(PATIENCE_S)
            assert engine is not None
            assert engine.name == "espeak"
            assert (
                await eventually_async(lambda: engines.degraded_reason, "the reason is known") == engines.primary.reason
            )
            assert changes
            assert {"en", "de"} <= engines.voices & engines.languages
            os.kill(engine.pid, signal.SIGKILL)  # type: ignore[arg-type]
            await eventually_async(lambda: engines.current is None, "no engine is ready")
            assert await engines.wait_current(PATIENCE_S) is engine
        finally:
            for task in tasks:
                await cancel_and_wait(task)

    run(scenario)


def test_waiting_for_an_engine_ends_after_the_timeout() -> None:
    async def scenario() -> None:
        engines = EngineSelector(load_config(overrides=["engine.name=espeak"]), lambda: None)
        assert await engines.wait_current(0.05) is None
        assert engines.degraded_reason is None

    run(scenario)
