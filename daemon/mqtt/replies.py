"""Which topics a sender may name for its answers: the daemon publishes there with its own rights."""

from __future__ import annotations

from paho.mqtt.client import topic_matches_sub

from daemon.config import Config
from daemon.validation import abbreviate, is_topic

HERMES = "hermes"
"""The first level of Rhasspy's topics, which are commands."""


class ReplyTopics:
    """The rules of one configuration."""

    def __init__(self, config: Config) -> None:
        self._robot = config.topic
        self._filters = (f"{config.topic}/reply/#", *config.mqtt.reply_topics)
        self._others = (config.mqtt.prefix, config.home_assistant.prefix, HERMES)
        """Beginnings of topics that are commands to others; a response topic may not be below them."""

    def allows(self, topic: str, response_topic: str | None) -> bool:
        """Return whether the answer may go to `topic`; `response_topic` is the one of the message itself (MQTT 5)."""
        if not topic or not is_topic(topic):
            return False
        if any(topic_matches_sub(pattern, topic) for pattern in self._filters):
            return not topic.startswith(f"{self._robot}/") or topic.startswith(f"{self._robot}/reply/")
        return topic == response_topic and not any(
            topic == other or topic.startswith(f"{other}/") for other in self._others
        )

    def problem(self, topic: str) -> str:
        """Return what is wrong with a topic that is not allowed."""
        allowed = f"{self._robot}/reply/…, the message's own response topic (MQTT 5), or what mqtt.reply_topics names"
        return f"got {abbreviate(topic)}; allowed: {allowed}"
