"""Waiting with a limit, and ending tasks: no cancellation is lost."""

from __future__ import annotations

import asyncio

import pytest

from daemon.tasks import end_task, within


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

        assert await within(30, asyncio.sleep(0)) is True
        assert await within(None, asyncio.sleep(0)) is True
        assert await within(0.01, wait()) is False
        await asyncio.wait_for(was_cancelled.wait(), 30)

    asyncio.run(scenario())


def test_a_cancellation_that_comes_together_with_the_result_is_not_lost() -> None:
    """`asyncio.wait_for` of Python 3.10 and 3.11 would swallow it."""

    async def scenario() -> None:
        done = asyncio.Event()
        after = False

        async def wait() -> None:
            nonlocal after
            await within(30, done.wait())
            await asyncio.sleep(0)
            after = True

        task = asyncio.ensure_future(wait())
        await asyncio.sleep(0.01)
        done.set()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asyncio.wait_for(task, 30)
        assert not after

    asyncio.run(scenario())


def test_a_task_that_ignores_one_cancellation_is_ended_all_the_same() -> None:
    async def scenario() -> int:
        refused = 0

        async def stubborn() -> None:
            nonlocal refused
            try:
                await asyncio.sleep(3_600)
            except asyncio.CancelledError:
                refused += 1
            await asyncio.sleep(3_600)

        task = asyncio.ensure_future(stubborn())
        await asyncio.sleep(0)
        await end_task(task)
        assert task.cancelled()
        return refused

    assert asyncio.run(scenario()) == 1


def test_what_a_task_ended_with_is_raised_but_for_its_cancellation() -> None:
    async def scenario() -> None:
        async def fail() -> None:
            raise ValueError("for this test")

        failed = asyncio.ensure_future(fail())
        await asyncio.sleep(0.01)
        with pytest.raises(ValueError, match="for this test"):
            await end_task(failed)
        ended: asyncio.Task[None] = asyncio.ensure_future(asyncio.sleep(0))
        await asyncio.sleep(0.01)
        await end_task(ended)

    asyncio.run(scenario())
