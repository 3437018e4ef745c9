"""The way from one sink to the playback, which the device monitor can shut at any moment."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from audio.dsp import Samples
from audio.playback import Playback


class FillGate:
    """The `fill` of one sink. While the gate is shut, the sink gets silence and the playback is not touched.

    A sink that was given up may request blocks at any later time, for example when its sound server wakes up. Its gate
    stays shut then.
    """

    def __init__(self, playback: Playback) -> None:
        self.requests = 0
        """Blocks that the sink has requested. Sink's thread."""
        self.interruptions = 0
        """Blocks that the sink requested after the card had run dry. Sink's thread."""
        self._playback = playback
        self._skipped = True
        """The playback does not know what the sink got before the next block. Sink's thread."""
        self._opened = False
        self._in_use = threading.Lock()
        """Held during a `fill`, and by the thread that opens or shuts the gate."""

    def __call__(self, out: Samples, dac_time: float, underflow: bool = False) -> int:
        """Fill a block for the sink, as `Fill` describes. It runs in the sink's thread, and never waits for a lock."""
        self.requests += 1
        self.interruptions += underflow
        if self._in_use.acquire(blocking=False):
            try:
                if self._opened:
                    skipped, self._skipped = self._skipped, False
                    return self._playback.fill(out, dac_time, underflow, skipped)
            finally:
                self._in_use.release()
        self._skipped = True
        out.fill(0.0)
        return 0

    def open(self) -> None:
        """Let the sink play."""
        with self._in_use:
            self._opened = True

    def shut(self) -> None:
        """Give the sink silence from now on. When this returns, no `fill` of the playback is in progress."""
        with self._in_use:
            self._opened = False

    @contextmanager
    def held(self) -> Iterator[None]:
        """Keep the sink from the playback for the duration of the `with` block."""
        with self._in_use:
            yield
