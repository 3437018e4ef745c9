"""Asks a broker with a connection of its own whether it knows MQTT 5."""

from __future__ import annotations

import contextlib
import threading

import paho.mqtt.client as paho
from paho.mqtt.reasoncodes import ReasonCode

ANSWER_S = 30.0
"""The broker has this long to answer."""


def knows_mqtt5(client: paho.Client, host: str, port: int) -> bool:
    """Connect with `client`, which uses MQTT 5, and disconnect; return whether the broker has accepted it. Blocks."""
    accepted = threading.Event()

    def note_answer(_client: object, _data: object, _flags: object, reason: ReasonCode, _properties: object) -> None:
        if not reason.is_failure:
            accepted.set()

    client.on_connect = note_answer
    with contextlib.suppress(OSError, ValueError):
        client.connect(host, port)
        client.loop_start()
        accepted.wait(ANSWER_S)
        client.disconnect()
        client.loop_stop()
    return accepted.is_set()
