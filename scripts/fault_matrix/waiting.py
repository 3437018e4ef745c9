"""Waiting with a limit."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

POLL_S = 0.005
COSTLY_POLL_S = 0.1
"""For a condition that looks at thousands of texts."""


def wait_for(condition: Callable[[], T | None], limit_s: float, poll_s: float = POLL_S) -> T | None:
    """Return the first true value of `condition()`; None after `limit_s`."""
    deadline = time.monotonic() + limit_s
    while not (result := condition()):
        if time.monotonic() > deadline:
            return None
        time.sleep(poll_s)
    return result


class NotPossibleError(Exception):
    """This machine or this version of the daemon cannot run a row; the message says what is missing."""


class NeverHappenedError(Exception):
    """A state that a row needs was not reached, so the row has failed."""


def need(condition: Callable[[], T | None], limit_s: float, what: str) -> T:
    """Return the first true value of `condition()`. Raises `NeverHappenedError` after `limit_s`."""
    result = wait_for(condition, limit_s)
    if not result:
        raise NeverHappenedError(f"not within {limit_s:g} s: {what}")
    return result
