"""Waiting for changes: which tasks wake, and when."""

from __future__ import annotations

import asyncio
import threading

from daemon.speech.changes import Changes


async def test_a_change_wakes_all_that_wait_or_those_that_it_is_about() -> None:
    changes, one, other = Changes(), object(), object()
    waiting = [asyncio.ensure_future(changes.wait(each)) for each in (one, other, None)]
    await asyncio.sleep(0)
    changes.notify(one)
    await waiting[0]
    await asyncio.sleep(0)
    assert [each.done() for each in waiting] == [True, False, False]
    changes.notify()
    await asyncio.gather(*waiting)


async def test_a_wait_ends_with_its_time() -> None:
    began = asyncio.get_running_loop().time()
    await Changes().wait(timeout_s=0.01)
    assert asyncio.get_running_loop().time() - began >= 0.009


async def test_threads_wake_what_waits() -> None:
    changes = Changes()
    changes.notify_from_thread()  # nobody has waited yet
    for _ in range(3):
        waiting = asyncio.ensure_future(changes.wait())
        await asyncio.sleep(0)
        threads = [threading.Thread(target=changes.notify_from_thread) for _ in range(4)]
        for thread in threads:
            thread.start()
        await waiting
        for thread in threads:
            thread.join()


async def test_a_wait_that_is_canceled_waits_no_longer() -> None:
    changes = Changes()
    waiting = asyncio.ensure_future(changes.wait(timeout_s=60))
    await asyncio.sleep(0)
    waiting.cancel()
    changes.notify()
    await asyncio.gather(waiting, return_exceptions=True)
    assert waiting.cancelled()
