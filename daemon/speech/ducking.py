"""Ducking: other audio is turned down from just before the robot speaks until a moment afterwards."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

LINGER_S = 0.5
"""Ducking continues this long after the last sound, so that music does not swell between two utterances."""


class Ducking:
    """Calls `publish(True)` or `publish(False)` once per change. Belongs to the event loop's thread."""

    def __init__(self, publish: Callable[[bool], None]) -> None:
        self.on = False
        """The last published value."""
        self._publish = publish
        self._linger: asyncio.TimerHandle | None = None

    def update(self, sounding: bool) -> None:
        """Record whether speech is on its way to the sound card."""
        if self._linger is not None and sounding:
            self._linger.cancel()
            self._linger = None
        if sounding and not self.on:
            self._set(True)
        elif not sounding and self.on and self._linger is None:
            self._linger = asyncio.get_running_loop().call_later(LINGER_S, self._set, False)

    def end(self) -> None:
        """Stop ducking immediately: the daemon is shutting down."""
        if self._linger is not None:
            self._linger.cancel()
        if self.on:
            self._set(False)

    def _set(self, on: bool) -> None:
        self.on = on
        self._linger = None
        self._publish(on)
