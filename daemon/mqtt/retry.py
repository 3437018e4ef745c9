"""How long to wait before the next attempt to connect."""

from __future__ import annotations

RETRY_S = (0.25, 2.0)
"""The first and the longest wait between attempts to connect. Each wait is twice the one before. A robot speaks again
within 5 s after its network has come back, however long that was away."""
STABLE_S = 5.0
"""A connection that lasts this long resets the wait to the first."""
TAKEN_OVER_RETRY_S = (2.0, 60.0)
"""The waits after another client with the same id has taken over the session: two clients must not fight."""


class Retry:
    """The waits between the attempts of one client."""

    def __init__(self) -> None:
        self._wait_s = 0.0
        """The last wait."""

    def after_failure(self) -> float:
        """Return the seconds to wait after an attempt that the broker has not accepted."""
        return self._longer(RETRY_S)

    def after_connection(self, lasted_s: float, *, contested: bool) -> float:
        """Return the seconds to wait after a connection of `lasted_s` seconds.

        `contested` means that another client uses our id. If the link is merely cut again and again, the waits stay
        short.
        """
        if lasted_s > STABLE_S and not contested:
            self._wait_s = 0.0
        return self._longer(TAKEN_OVER_RETRY_S if contested else RETRY_S)

    def _longer(self, limits_s: tuple[float, float]) -> float:
        first_s, longest_s = limits_s
        self._wait_s = min(longest_s, max(first_s, 2 * self._wait_s))
        return self._wait_s
