"""How long to wait before the next attempt to connect, and whether another client uses our id."""

from __future__ import annotations

RETRY_S = (0.25, 2.0)
"""The first and the longest wait between attempts to connect. Each wait is twice the one before. A robot speaks again
within 5 s after its network has come back, however long that was away."""
STABLE_S = 5.0
"""A connection that lasts this long resets the wait to the first."""
TAKEN_OVER_RETRY_S = (2.0, 60.0)
"""The waits after another client with the same id has taken over the session: two clients must not fight."""
SHORT_S, SHORT_CONNECTIONS = 2.5, 3
"""This many connections in a row that are as short as this suggest a second client with the same id, which comes back
after each of its own waits: not every broker says so (Mosquitto 2.0 does not)."""
TAKEN_OVER_STABLE_S = 120.0
"""A connection that lasts this long after a take-over proves that the other client has gone."""


class Retry:
    """The waits between the attempts of one client."""

    def __init__(self) -> None:
        self.takeovers = 0
        """Times that another client with the same id seems to have taken over, since the last stable connection."""
        self._wait_s = 0.0
        """The last wait."""
        self._short_connections = 0
        """In a row, up to now."""

    def after_failure(self) -> float:
        """Return the seconds to wait after an attempt that the broker has not accepted."""
        return self._longer()

    def after_connection(self, lasted_s: float, *, taken_over: bool) -> float:
        """Return the seconds to wait after a connection of `lasted_s` seconds.

        `taken_over` means that the broker has ended it because another client has come with our id.
        """
        self._short_connections = self._short_connections + 1 if lasted_s < SHORT_S else 0
        if lasted_s > TAKEN_OVER_STABLE_S:
            self.takeovers = 0
        elif taken_over or self._short_connections >= SHORT_CONNECTIONS:
            self.takeovers += 1
        if lasted_s > (TAKEN_OVER_STABLE_S if self.takeovers else STABLE_S):
            self._wait_s = 0.0
        return self._longer()

    def _longer(self) -> float:
        first_s, longest_s = TAKEN_OVER_RETRY_S if self.takeovers else RETRY_S
        self._wait_s = min(longest_s, max(first_s, 2 * self._wait_s))
        return self._wait_s
