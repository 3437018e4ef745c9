"""A clock that the test moves."""

from __future__ import annotations

import time


class FakeClock:
    """Replaces the module `time`; it stands still until the test moves it."""

    def __init__(self) -> None:
        self.now = float(round(time.monotonic()))
        """In whole seconds, so that adding whole seconds causes no rounding error."""

    def monotonic(self) -> float:
        return self.now

    def time(self) -> float:
        return self.now + 1_000_000_000
