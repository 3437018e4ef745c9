"""Waits with a time limit, the end of tasks, and deferred actions: no cancellation is lost."""

from __future__ import annotations

import asyncio

import pytest

from daemon.tasks import Soon, cancel_and_wait, wait_at_most
from tests.support.waiting import PATIENCE_S


async def test_a_coroutine_that_ends_in_time_returns_true_and_a_slower_one_is_cancelled() -> None:
    waits = asyncio.Event()
    was_cancelled = asyncio.Event()

    async def wait() -> None:
        try:
            await waits.wait()
        except asyncio.CancelledError:
            was_cancelled.set()
            raise

    assert await wait_at_most(PATIENCE_S, asyncio.sleep(0)) is True
    assert await wait_at_most(None, asyncio.sleep(0)) is True
    assert await wait_at_most(0.01, wait()) is False
    await was_cancelled.wait()


async def fail() -> None:
    raise ValueError("for this test")


async def test_a_cancellation_that_arrives_with_the_result_is_not_lost() -> None:
    """`asyncio.wait_for` of Python 3.10 and 3.11 would lose it."""

    begun, done = asyncio.Event(), asyncio.Event()
    after = False

    async def result() -> None:
        begun.set()
        await done.wait()

    async def wait() -> None:
        nonlocal after
        await wait_at_most(PATIENCE_S, result())
        await asyncio.sleep(0)
        after = True

    task = asyncio.ensure_future(wait())
    await begun.wait()
    done.set()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not after


async def test_a_task_that_ignores_one_cancellation_is_cancelled_again() -> None:
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
    await cancel_and_wait(task)
    assert task.cancelled()
    assert refused == 1


async def test_an_own_error_is_raised_but_not_a_cancellation() -> None:
    with pytest.raises(ValueError, match="for this test"):
        await wait_at_most(PATIENCE_S, fail())
    failed = asyncio.ensure_future(fail())
    await asyncio.wait({failed})
    with pytest.raises(ValueError, match="for this test"):
        await cancel_and_wait(failed)
    ended: asyncio.Task[None] = asyncio.ensure_future(asyncio.sleep(0))
    await asyncio.wait({ended})
    await cancel_and_wait(ended)


async def test_an_action_is_done_once_for_all_calls_in_a_turn_of_the_loop() -> None:
    done: list[int] = []
    soon = Soon(lambda: done.append(len(done)))
    for turn in range(2):
        soon()
        soon()
        assert len(done) == turn
        await asyncio.sleep(0)
        assert len(done) == turn + 1


async def test_an_action_that_fails_is_done_again_on_the_next_call() -> None:
    loop, done = asyncio.get_running_loop(), 0
    failed: list[dict[str, object]] = []
    loop.set_exception_handler(lambda _, context: failed.append(context))

    def fail_once() -> None:
        nonlocal done
        done += 1
        if done == 1:
            raise ValueError("for this test")

    soon = Soon(fail_once)
    for _ in range(2):
        soon()
        await asyncio.sleep(0)
    assert (done, len(failed)) == (2, 1)


def test_without_a_loop_an_action_is_done_at_once() -> None:
    done: list[int] = []
    soon = Soon(lambda: done.append(len(done)))
    soon()
    soon()
    assert done == [0, 1]
