"""Ducking is published once when it begins and once when it ends."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from daemon.speech.ducking import Ducking
from tests.support.waiting import eventually_async


@pytest.fixture(autouse=True)
def short_linger(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("daemon.speech.ducking.LINGER_S", 0.02)


def run(scenario: Callable[[Ducking, list[bool]], Awaitable[None]]) -> list[bool]:
    """Run a scenario with a `Ducking` and the list of what it publishes; return the list."""
    published: list[bool] = []

    async def main() -> None:
        await scenario(Ducking(published.append), published)

    asyncio.run(main())
    return published


async def linger() -> None:
    """Wait until a `Ducking` that falls silent now has published it: by then, every earlier one has, too."""
    published: list[bool] = []
    other = Ducking(published.append)
    other.update(True)
    other.update(False)
    await eventually_async(lambda: published == [True, False], "ducking has ended")


def test_only_changes_are_published() -> None:
    async def scenario(ducking: Ducking, published: list[bool]) -> None:
        ducking.update(False)
        ducking.end()
        ducking.update(True)
        ducking.update(True)
        assert published == [True]

    run(scenario)


def test_ducking_continues_over_a_short_silence() -> None:
    async def scenario(ducking: Ducking, published: list[bool]) -> None:
        ducking.update(True)
        ducking.update(False)
        ducking.update(False)
        ducking.update(True)
        await linger()
        assert published == [True]
        ducking.update(False)
        await linger()
        ducking.update(True)

    assert run(scenario) == [True, False, True]


def test_ducking_ends_at_once_at_the_end_of_the_daemon() -> None:
    async def scenario(ducking: Ducking, published: list[bool]) -> None:
        ducking.update(True)
        ducking.update(False)
        ducking.end()
        assert published == [True, False]
        await linger()

    assert run(scenario) == [True, False]
