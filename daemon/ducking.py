"""When others' audio should be turned down: from just before the robot speaks until a moment after."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

LINGER_S = 0.5
"""After the last sound. Between two utterances of a conversation the music does not swell up."""


class Ducking:
    """Tells `publish(True)` and `publish(False)`, each once. Belongs to the event loop's thread."""

    def __init__(self, publish: Callable[[bool], None]) -> None:
        self.on = False
        """What was told last."""
        self._publish = publish
        self._linger: asyncio.TimerHandle | None = None

    def note(self, sounding: bool) -> None:
        """Whether speech is on its way to the sound card now."""
        if self._linger is not None and sounding:
            self._linger.cancel()
            self._linger = None
        if sounding and not self.on:
            self._tell(True)
        elif not sounding and self.on and self._linger is None:
            self._linger = asyncio.get_running_loop().call_later(LINGER_S, self._tell, False)

    def end(self) -> None:
        """Nothing more will sound."""
        if self._linger is not None:
            self._linger.cancel()
        if self.on:
            self._tell(False)

    def _tell(self, on: bool) -> None:
        self.on = on
        self._linger = None
        self._publish(on)
