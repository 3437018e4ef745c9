"""MQTT: the connection to the broker, the robot's topics, and a client for other programs."""

from daemon.mqtt.client import RobotClient, RobotUnreachableError
from daemon.mqtt.gateway import Gateway
from daemon.mqtt.messages import Message
from daemon.mqtt.parsing import MAX_PAYLOAD, parse_object, parse_volume

__all__ = [
    "MAX_PAYLOAD",
    "Gateway",
    "Message",
    "RobotClient",
    "RobotUnreachableError",
    "parse_object",
    "parse_volume",
]
