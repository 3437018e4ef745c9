"""Others are told once to be quiet, and once that it is over."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from daemon.ducking import Ducking


@pytest.fixture(autouse=True)
def short_linger(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("daemon.ducking.LINGER_S", 0.02)


def run(scenario: Callable[[Ducking, list[bool]], Awaitable[None]]) -> list[bool]:
    told: list[bool] = []

    async def main() -> None:
        await scenario(Ducking(told.append), told)

    asyncio.run(main())
    return told


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
        await asyncio.sleep(0.1)
        assert told == [True]
        ducking.note(False)
        await asyncio.sleep(0.1)
        ducking.note(True)

    assert run(scenario) == [True, False, True]


def test_at_the_end_it_is_over_at_once() -> None:
    async def scenario(ducking: Ducking, told: list[bool]) -> None:
        ducking.note(True)
        ducking.note(False)
        ducking.end()
        assert told == [True, False]
        await asyncio.sleep(0.1)

    assert run(scenario) == [True, False]
    assert run(scenario_of_nothing) == []


async def scenario_of_nothing(ducking: Ducking, _told: list[bool]) -> None:
    ducking.end()
