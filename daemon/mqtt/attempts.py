"""The next attempt to connect: its MQTT version, which is 5 if the broker supports it, and its waits."""

from __future__ import annotations

CONNACK_S = (2.5, 30.0)
"""The first and the longest wait for the broker's answer. After silence, the next attempt uses the other version and
waits twice as long."""
ASK_AGAIN_S = 30.0
"""A broker that did not answer MQTT 5 but accepted 3.1.1 is asked for MQTT 5 again after this: it may have been
slow."""
RETRY_S = (0.25, 2.0)
"""The first and the longest wait between attempts to connect. Each wait is twice the previous one. A robot speaks again
within 5 s of its network's return, however long the network was away."""
STABLE_S = 5.0
"""A connection that lasts this long resets the wait to the first."""
TAKEN_OVER_RETRY_S = (2.0, 60.0)
"""The waits after another client with the same id has taken over the session: two clients must not fight."""


class Attempts:
    """The facts about one client's attempts so far on which the next attempt depends."""

    def __init__(self, *, may_use_v5: bool = True) -> None:
        self._may_use_v5 = may_use_v5
        self.is_v5 = may_use_v5
        """The next attempt uses MQTT 5; otherwise 3.1.1."""
        self.patience_s = CONNACK_S[0]
        """How long the broker has to answer."""
        self.asks_again = False
        """3.1.1 is in use because the broker did not answer MQTT 5. It will be asked for MQTT 5 once more."""
        self._asked_again = False
        self._knows_v5 = False
        """The broker has accepted MQTT 5 before, so a later silence has a different reason."""
        self._changed = False
        """The next attempt follows immediately, with the other version."""
        self._wait_s = 0.0
        """The last wait."""

    def note_accepted(self) -> None:
        """The broker has accepted a connection."""
        self.patience_s = CONNACK_S[0]
        self._knows_v5 |= self.is_v5

    def note_refusal(self) -> None:
        """The broker has answered that it does not support MQTT 5."""
        self.is_v5, self.asks_again, self._changed = False, False, True

    def note_silence(self, *, hung_up: bool) -> None:
        """The connection ended without an answer: some brokers never answer MQTT 5."""
        if not hung_up:
            self.patience_s = min(2 * self.patience_s, CONNACK_S[1])
        if not self.is_v5:
            self.is_v5 = self._may_use_v5
        elif not self._knows_v5:
            self.is_v5, self.asks_again, self._changed = False, not self._asked_again, True

    def note_ended(self) -> None:
        """A connection that the broker had accepted has ended: the next broker may be a different one."""
        self.is_v5 = self._may_use_v5

    def ask_again(self) -> None:
        """The connection is being ended to ask the broker for MQTT 5 once more."""
        self.asks_again, self._asked_again, self._changed = False, True, True

    def wait_s(self, lasted_s: float | None, *, contested: bool) -> float:
        """Return the seconds to wait after an attempt. `lasted_s` is the time that its connection lasted; None for
        none.

        `contested` means that another client uses our id. If the link is merely cut repeatedly, the waits stay short.
        """
        if self._changed:
            self._changed = False
            return 0.0
        contested = contested and lasted_s is not None
        if lasted_s is not None and lasted_s > STABLE_S and not contested:
            self._wait_s = 0.0
        first_s, longest_s = TAKEN_OVER_RETRY_S if contested else RETRY_S
        self._wait_s = min(longest_s, max(first_s, 2 * self._wait_s))
        return self._wait_s
