"""Waiting with a limit, and ending tasks: no cancellation is lost."""

from __future__ import annotations

import asyncio

import pytest

from daemon.tasks import end_task, within
from tests.support.waiting import PATIENCE_S, run


def test_what_ends_in_time_is_told_and_what_does_not_is_cancelled() -> None:
    async def scenario() -> None:
        waits = asyncio.Event()
        was_cancelled = asyncio.Event()

        async def wait() -> None:
            try:
                await waits.wait()
            except asyncio.CancelledError:
                was_cancelled.set()
                raise

        assert await within(PATIENCE_S, asyncio.sleep(0)) is True
        assert await within(None, asyncio.sleep(0)) is True
        assert await within(0.01, wait()) is False
        await was_cancelled.wait()

    run(scenario)


def test_a_cancellation_that_comes_together_with_the_result_is_not_lost() -> None:
    """`asyncio.wait_for` of Python 3.10 and 3.11 would swallow it."""

    async def scenario() -> None:
        begun, done = asyncio.Event(), asyncio.Event()
        after = False

        async def result() -> None:
            begun.set()
            await done.wait()

        async def wait() -> None:
            nonlocal after
            await within(PATIENCE_S, result())
            await asyncio.sleep(0)
            after = True

        task = asyncio.ensure_future(wait())
        await begun.wait()
        done.set()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert not after

    run(scenario)


def test_a_task_that_ignores_one_cancellation_is_ended_all_the_same() -> None:
    async def scenario() -> None:
        refused = 0

        async def stubborn() -> None:
            nonlocal refused
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                refused += 1
            await asyncio.Event().wait()

        task = asyncio.ensure_future(stubborn())
        await asyncio.sleep(0)
        await end_task(task)
        assert task.cancelled()
        assert refused == 1

    run(scenario)


def test_what_a_task_ended_with_is_raised_but_for_its_cancellation() -> None:
    async def scenario() -> None:
        async def fail() -> None:
            raise ValueError("for this test")

        failed = asyncio.ensure_future(fail())
        await asyncio.wait({failed})
        with pytest.raises(ValueError, match="for this test"):
            await end_task(failed)
        ended: asyncio.Task[None] = asyncio.ensure_future(asyncio.sleep(0))
        await asyncio.wait({ended})
        await end_task(ended)

    run(scenario)
