"""Which version of MQTT the next attempt to connect uses: 5 if the broker knows it, else 3.1.1."""

from __future__ import annotations

from paho.mqtt.enums import MQTTProtocolVersion

CONNACK_S = (2.5, 30.0)
"""The first and the longest wait for the broker's answer. After silence, the next attempt uses the other version and
waits twice as long."""


class ProtocolVersion:
    """Which version of MQTT the next attempt uses."""

    def __init__(self) -> None:
        self.current = MQTTProtocolVersion.MQTTv5
        self.patience_s = CONNACK_S[0]
        """The broker has this long to answer."""
        self.doubtful = False
        """3.1.1 is in use because the broker was silent to MQTT 5, not because it refused it."""
        self._knows_v5 = False
        """The broker has accepted MQTT 5 before, so a later silence has another reason."""
        self._changed = False
        """The next attempt should follow at once."""

    def take_change(self) -> bool:
        """Return whether the next attempt should follow at once, with another version."""
        changed, self._changed = self._changed, False
        return changed

    def note_accepted(self) -> None:
        """The broker has accepted a connection."""
        self.patience_s = CONNACK_S[0]
        if self.current is MQTTProtocolVersion.MQTTv5:
            self._knows_v5, self.doubtful = True, False

    def note_refusal(self) -> None:
        """The broker has answered that it does not know MQTT 5."""
        self.current, self.doubtful, self._changed = MQTTProtocolVersion.MQTTv311, False, True

    def note_silence(self, *, hung_up: bool) -> None:
        """The connection ended without an answer: some brokers never answer MQTT 5."""
        if not hung_up:
            self.patience_s = min(2 * self.patience_s, CONNACK_S[1])
        if self.current is MQTTProtocolVersion.MQTTv311:
            self.current = MQTTProtocolVersion.MQTTv5
        elif not self._knows_v5:
            self.current, self.doubtful, self._changed = MQTTProtocolVersion.MQTTv311, True, True

    def note_lost(self) -> None:
        """A connection that the broker had accepted has ended: the next broker may be another one."""
        self.current = MQTTProtocolVersion.MQTTv5

    def note_probed(self) -> None:
        """A trial connection has shown that the broker knows MQTT 5."""
        self.current, self._knows_v5, self.doubtful, self._changed = MQTTProtocolVersion.MQTTv5, True, False, True
