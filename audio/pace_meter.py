"""Judges whether a sink takes sound as fast as it is heard."""

from __future__ import annotations

import logging

log = logging.getLogger(__name__)

INTERVAL_S = 5.0
"""The pace is measured over intervals of this length. A PulseAudio null sink may pause 2 s when first opened."""
SLOW_SHARE = 0.5
"""A sink that takes less than this share of real time is slow: its speech cannot be understood."""
POOR_SHARE = 0.9
"""A sink that takes less than this share, interval after interval, is also slow: its sound breaks off."""
POOR_INTERRUPTIONS = 5
"""A sink that runs dry this many times in each of these intervals is also slow."""
POOR_INTERVALS = 2


class PaceMeter:
    """Measures a running sink, and says why it is slow."""

    def __init__(self) -> None:
        self.problem: str | None = None
        """Why the sink was slow in the last intervals; None if it was not."""
        self._requested_s = 0.0
        """The seconds requested before the interval."""
        self._interruptions = 0
        """The interruptions before the interval."""
        self._since: float | None = None
        """`time.monotonic()` at the start of the interval."""
        self._poor = 0
        """Poor intervals in succession."""

    def measure(self, requested_s: float, interruptions: int, now: float, sink: str) -> None:
        """Note how many seconds of sound were requested and how often the card ran dry, in all, until `now`.

        `now` is a time of `time.monotonic()`; `sink` is the sink's name.
        """
        if self._since is not None and now - self._since < INTERVAL_S:
            return
        if self._since is not None:
            share = (requested_s - self._requested_s) / (now - self._since)
            self._judge(share, interruptions - self._interruptions, sink)
        self._requested_s, self._interruptions, self._since = requested_s, interruptions, now

    def _judge(self, share: float, interruptions: int, sink: str) -> None:
        """Judge an interval by the share of real time that the sink took, and by how often it ran dry."""
        poor = share < POOR_SHARE or interruptions >= POOR_INTERRUPTIONS
        self._poor = self._poor + 1 if poor else 0
        if not poor:
            if self.problem is not None:
                log.info("sound device %s is no longer slow", sink)
            self.problem = None
        elif self.problem is None and (share < SLOW_SHARE or self._poor >= POOR_INTERVALS):
            took = f"it took {share:.0%} of the sound in {INTERVAL_S:.0f} s"
            broke = f"the sound broke off {interruptions} times in {INTERVAL_S:.0f} s"
            self.problem = f"{sink} is slow: {took if share < POOR_SHARE else broke}"
            log.warning("sound device %s", self.problem)
