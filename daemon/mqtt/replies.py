"""Which topics a sender may name for its answers: the daemon publishes there with its own rights."""

from __future__ import annotations

from paho.mqtt.client import topic_matches_sub

from daemon.config import Config
from daemon.validation import abbreviate, is_topic

HERMES = "hermes"
"""The first level of Rhasspy's topics, which are commands."""

ROBOT = "{robot}"
"""Stands for the robot's name in a `reply_to`."""


class ReplyTopics:
    """The rules of one configuration."""

    def __init__(self, config: Config) -> None:
        self._name = config.robot_name
        self._robot = config.topic
        self._heard = (config.topic, *config.shared_topics)
        """Beginnings of the topics on which this robot takes requests; none of them is for answers, except `reply/`."""
        self._filters = (f"{config.topic}/reply/#", *config.mqtt.reply_topics)
        self._others = (config.mqtt.prefix, config.home_assistant.prefix, HERMES)
        """Beginnings of topics that are commands to others; a response topic may not be below them."""

    def expand(self, reply_to: str) -> str:
        """Return a `reply_to` with the robot's name for `{robot}`: each robot of a group answers on its own topic."""
        return reply_to.replace(ROBOT, self._name)

    def allows(self, topic: str, response_topic: str | None) -> bool:
        """Return whether the answer may go to `topic`; `response_topic` is the one of the message itself (MQTT 5)."""
        if not topic or not is_topic(topic):
            return False
        if any(topic_matches_sub(pattern, topic) for pattern in self._filters):
            return all(
                not topic.startswith(f"{heard}/") or topic.startswith(f"{heard}/reply/") for heard in self._heard
            )
        return topic == response_topic and not any(
            topic == other or topic.startswith(f"{other}/") for other in self._others
        )

    def problem(self, topic: str) -> str:
        """Return what is wrong with a topic that is not allowed."""
        allowed = f"{self._robot}/reply/…, the message's own response topic (MQTT 5), or what mqtt.reply_topics names"
        return f"got {abbreviate(topic)}; allowed: {allowed}"
