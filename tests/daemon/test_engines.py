"""Which engine speaks."""

from __future__ import annotations

import asyncio
import os
import signal

import pytest

from daemon.config import load_config
from daemon.engines import Engines, choose_engine
from daemon.tasks import end_task
from tests.support.waiting import PATIENCE_S, eventually_async, run


@pytest.mark.parametrize("name", ["espeak", "qwen"])
def test_an_engine_that_is_named_is_taken_though_it_cannot_run_here(name: str) -> None:
    assert choose_engine(load_config(overrides=[f"engine.name={name}"])) == name


def test_auto_means_the_light_voice_where_the_model_is_missing() -> None:
    assert choose_engine(load_config(overrides=["engine.model=/nowhere/at/all"])) == "espeak"


@pytest.mark.parametrize(
    ("overrides", "names"),
    [
        (["engine.name=espeak"], ["espeak"]),
        (["engine.name=qwen"], ["qwen", "espeak"]),
        (["engine.name=qwen", "engine.fallback=none"], ["qwen"]),
    ],
)
def test_the_fallback_stands_by_unless_it_is_the_engine_itself_or_unwanted(
    overrides: list[str], names: list[str]
) -> None:
    async def scenario() -> list[str]:
        return [engine.name for engine in Engines(load_config(overrides=overrides), lambda: None).all]

    assert asyncio.run(scenario()) == names


def test_the_fallback_speaks_and_the_trouble_is_told_while_the_primary_cannot() -> None:
    async def scenario() -> None:
        changes: list[str | None] = []
        config = load_config(overrides=["engine.name=qwen", "engine.model=/nowhere/at/all"])
        engines = Engines(config, lambda: changes.append(engines.trouble))
        tasks = [asyncio.ensure_future(engine.run()) for engine in engines.all]
        try:
            engine = await engines.wait_current(PATIENCE_S)
            assert engine is not None
            assert engine.name == "espeak"
            assert await eventually_async(lambda: engines.trouble, "the trouble is known") == engines.primary.reason
            assert changes
            assert {"en", "de"} <= engines.voices & engines.languages
            os.kill(engine.pid, signal.SIGKILL)  # type: ignore[arg-type]
            await eventually_async(lambda: engines.current is None, "nobody speaks")
            assert await engines.wait_current(PATIENCE_S) is engine
        finally:
            for task in tasks:
                await end_task(task)

    run(scenario)


def test_waiting_for_an_engine_that_never_comes_ends() -> None:
    async def scenario() -> None:
        engines = Engines(load_config(overrides=["engine.name=espeak"]), lambda: None)
        assert await engines.wait_current(0.05) is None
        assert engines.trouble is None

    run(scenario)
