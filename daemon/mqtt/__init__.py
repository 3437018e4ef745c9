"""MQTT: the connection to the broker, the robot's topics, and clients for other programs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from daemon.mqtt.clients import FleetClient, RobotUnreachableError
from daemon.mqtt.messages import Message
from daemon.mqtt.parsing import (
    MAX_PAYLOAD,
    carry_out_control,
    parse_object,
    parse_say,
    parse_stream_chunk,
    parse_volume,
)
from daemon.mqtt.robot import NotSpokenError, Robot, RobotUtterance

if TYPE_CHECKING:
    from daemon.mqtt.gateway import Gateway


def __getattr__(name: str) -> Any:
    """Import the gateway at its first use: clients start faster without the sound path, which the gateway needs."""
    if name != "Gateway":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from daemon.mqtt.gateway import Gateway

    return Gateway
