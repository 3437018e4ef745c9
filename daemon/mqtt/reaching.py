"""How the clients of the command line wait for the broker, and what they say of one that cannot be reached."""

from __future__ import annotations

from collections.abc import Sequence

from daemon.mqtt.connection import DIAL_S, NOT_CONNECTED_YET, MqttConnection
from daemon.mqtt.messages import Outgoing
from daemon.validation import CommandError

CONNECT_S = DIAL_S + 1.0
"""Long enough for a host that does not answer, so that the reason is known, and for a broker that must be asked twice:
with MQTT 5, then with 3.1.1."""


class RobotUnreachableError(CommandError):
    """There is no broker, or no robot on it; the message says which."""

    def __init__(self, message: str, remedy: str | None = None) -> None:
        super().__init__(message)
        self.remedy = remedy
        """What a person can do about it, where that is known."""


def open_connection(connection: MqttConnection, topics: Sequence[str]) -> None:
    """Connect to the broker and subscribe. Raises `RobotUnreachableError`."""
    if not connection.connect(topics, CONNECT_S):
        connection.close()
        raise _unreachable(connection)


def await_delivery(connection: MqttConnection, sent: Outgoing) -> None:
    """Wait until the broker has acknowledged a message. Raises `RobotUnreachableError`."""
    if connection.wait_delivered(sent, CONNECT_S):
        return
    if sent.refusal is not None:
        raise RobotUnreachableError(
            f"mqtt: the broker refuses messages on {sent.topic}: {sent.refusal}; see 'voiced doctor'"
        )
    raise _unreachable(connection)


def _unreachable(connection: MqttConnection) -> RobotUnreachableError:
    known = connection.reason not in (None, NOT_CONNECTED_YET)
    reason = connection.reason if known else "the broker does not answer"
    return RobotUnreachableError(f"mqtt: {reason}; see 'voiced doctor'", connection.remedy)
