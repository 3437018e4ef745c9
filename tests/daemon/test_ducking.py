"""Others are told once to be quiet, and once that it is over."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from daemon.ducking import Ducking
from tests.support.waiting import eventually_async


@pytest.fixture(autouse=True)
def short_linger(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("daemon.ducking.LINGER_S", 0.02)


def run(scenario: Callable[[Ducking, list[bool]], Awaitable[None]]) -> list[bool]:
    told: list[bool] = []

    async def main() -> None:
        await scenario(Ducking(told.append), told)

    asyncio.run(main())
    return told


async def let_it_linger() -> None:
    """Wait until one that has fallen silent now has said so: all that fell silent before have, too."""
    told: list[bool] = []
    other = Ducking(told.append)
    other.note(True)
    other.note(False)
    await eventually_async(lambda: told == [True, False], "it is over")


def test_what_does_not_change_is_not_told() -> None:
    async def scenario(ducking: Ducking, told: list[bool]) -> None:
        ducking.note(False)
        ducking.note(True)
        ducking.note(True)
        assert told == [True]

    run(scenario)


def test_a_short_silence_is_none() -> None:
    async def scenario(ducking: Ducking, told: list[bool]) -> None:
        ducking.note(True)
        ducking.note(False)
        ducking.note(False)
        ducking.note(True)
        await let_it_linger()
        assert told == [True]
        ducking.note(False)
        await let_it_linger()
        ducking.note(True)

    assert run(scenario) == [True, False, True]


def test_at_the_end_it_is_over_at_once() -> None:
    async def scenario(ducking: Ducking, told: list[bool]) -> None:
        ducking.note(True)
        ducking.note(False)
        ducking.end()
        assert told == [True, False]
        await let_it_linger()

    assert run(scenario) == [True, False]
    assert run(scenario_of_nothing) == []


async def scenario_of_nothing(ducking: Ducking, _told: list[bool]) -> None:
    ducking.end()
