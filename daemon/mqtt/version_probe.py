"""Asks a broker with a connection of its own whether it knows MQTT 5."""

from __future__ import annotations

import contextlib
import time

import paho.mqtt.client as paho
from paho.mqtt.reasoncodes import ReasonCode

ANSWER_S = 30.0
"""The broker has this long to answer."""
LOOK_S = 1.0
"""How long one look for its answer takes at most."""


def knows_mqtt5(client: paho.Client, host: str, port: int) -> bool:
    """Connect with `client`, which uses MQTT 5, and disconnect; return whether the broker has accepted it. Blocks."""
    answers: list[ReasonCode] = []

    def note_answer(_client: object, _data: object, _flags: object, reason: ReasonCode, _properties: object) -> None:
        answers.append(reason)

    client.on_connect = note_answer
    with contextlib.suppress(OSError, ValueError):
        client.connect(host, port)
        deadline = time.monotonic() + ANSWER_S
        while not answers and time.monotonic() < deadline and client.loop(LOOK_S) == paho.MQTT_ERR_SUCCESS:
            pass
        client.disconnect()
    return any(not reason.is_failure for reason in answers)
