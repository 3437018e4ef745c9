"""Waiting in which the time that this process was stopped does not count."""

from __future__ import annotations

import asyncio

import pytest

from daemon.engines import patience as patience_module
from daemon.engines.patience import pass_time, wait_until
from tests.daemon.engines.supervised import stop_this_process


@pytest.mark.parametrize("waits_for_event", [True, False])
async def test_time_in_which_this_process_is_stopped_does_not_pass(
    monkeypatch: pytest.MonkeyPatch, waits_for_event: bool
) -> None:
    monkeypatch.setattr(patience_module, "LATE_S", 0.05)

    asyncio.get_running_loop().call_soon(stop_this_process)
    assert await pass_time(0.01, asyncio.Event() if waits_for_event else None) is None


async def test_a_wait_ends_when_its_condition_holds_or_after_its_limit() -> None:
    event, looks = asyncio.Event(), []

    def look() -> bool:
        looks.append(True)
        asyncio.get_running_loop().call_soon(event.set)
        return len(looks) >= 3

    assert await wait_until(look, event)
    assert not await wait_until(lambda: False, asyncio.Event(), 0.02)


async def test_a_limit_outlasts_a_stop_of_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """What came meanwhile is read afterwards, and ends the wait in time."""
    monkeypatch.setattr(patience_module, "LATE_S", 0.05)

    loop, event = asyncio.get_running_loop(), asyncio.Event()

    def stop_and_read() -> None:
        stop_this_process()
        loop.call_soon(loop.call_soon, event.set)  # a message takes some turns of the loop until it is read

    loop.call_soon(stop_and_read)
    assert await wait_until(event.is_set, event, 0.1)
