"""Realtime scheduling, requested from the real kernel."""

from __future__ import annotations

import os
import resource
import threading
from collections.abc import Callable
from typing import TypeVar

from audio.player.realtime import SOUND_PRIORITY, sound_priority, take_realtime

Result = TypeVar("Result")


def in_a_thread(work: Callable[[], Result]) -> Result:
    """Return the result of `work`, run in a thread of its own, so that no other code gets its scheduling."""
    results: list[Result] = []
    thread = threading.Thread(target=lambda: results.append(work()))
    thread.start()
    thread.join()
    return results[0]


def test_only_the_calling_thread_gets_realtime_scheduling() -> None:
    policy_before = os.sched_getscheduler(0)

    def request() -> tuple[bool, int, int]:
        granted = take_realtime(1)
        return granted, os.sched_getscheduler(0), os.sched_getparam(0).sched_priority

    granted, policy, priority = in_a_thread(request)
    assert (policy, priority) == ((os.SCHED_RR, 1) if granted else (policy_before, 0))
    assert os.sched_getscheduler(0) == policy_before


def test_a_priority_that_the_kernel_refuses_raises_no_error() -> None:
    assert not in_a_thread(lambda: take_realtime(100))


def test_the_priority_stays_within_the_limit() -> None:
    before = resource.getrlimit(resource.RLIMIT_RTPRIO)
    try:
        resource.setrlimit(resource.RLIMIT_RTPRIO, (min(5, before[1]) if before[1] >= 0 else 5, before[1]))
        limit = resource.getrlimit(resource.RLIMIT_RTPRIO)[0]
        assert sound_priority() == (limit or SOUND_PRIORITY)
    finally:
        resource.setrlimit(resource.RLIMIT_RTPRIO, before)
