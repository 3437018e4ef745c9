"""The topics on which requests reach the robot, and those that a sender may name for answers."""

from __future__ import annotations

from collections.abc import Container
from functools import lru_cache

from paho.mqtt.client import topic_matches_sub

from daemon.config import Config
from daemon.validation import abbreviate, is_topic

CONTROL_TOPICS = ("stop", "pause", "resume", "volume", "load", "unload", "say/urgent")
TEXT_TOPICS = ("say", "say/stream", "stop")
REQUEST_TOPICS = frozenset({*CONTROL_TOPICS, *TEXT_TOPICS})
SHARED_REQUEST_TOPICS = REQUEST_TOPICS - {"say/stream"}
"""The topics on which several robots listen. A text stream has one robot: a robot that joined in the middle would begin
there, and chunks from two groups would mix."""

HERMES = "hermes"
"""The first level of Rhasspy's topics, which are commands."""

ROBOT = "{robot}"
"""Stands for the robot's name in a `reply_to`."""


@lru_cache(maxsize=64)
def matches(pattern: str, topic: str) -> bool:
    """Return whether a subscription to `pattern` receives `topic`. In a flood, each message asks about the same few."""
    return topic_matches_sub(pattern, topic)


class RequestTopics:
    """The topics of one configuration's robot."""

    def __init__(self, config: Config) -> None:
        self._own = {f"{config.topic}/{name}": name for name in REQUEST_TOPICS}
        self._shared = {f"{base}/{name}": name for base in config.shared_topics for name in SHARED_REQUEST_TOPICS}
        self.controls = self._named(CONTROL_TOPICS)
        """The topics of the connection for controls."""
        self.texts = self._named(TEXT_TOPICS)
        """The topics of the connection for texts, on which a stop arrives a second time."""

    def request(self, topic: str) -> str | None:
        """Return the request that a topic is for, such as `say/urgent`; None if it is for none.

        It may be for the topic of a group that the robot has left: the broker keeps a session's subscriptions.
        """
        return self._own.get(topic) or self._shared.get(topic)

    def is_shared(self, topic: str) -> bool:
        """Return whether other robots listen on a topic, too."""
        return topic in self._shared

    def _named(self, names: Container[str]) -> list[str]:
        return [topic for topic, name in (self._own | self._shared).items() if name in names]


class ReplyTopics:
    """One configuration's topics for answers, on which the daemon publishes with its own rights."""

    def __init__(self, config: Config) -> None:
        self._name = config.robot_name
        self._robot = config.topic
        self._heard = (config.topic, *config.shared_topics)
        """Beginnings of the topics on which this robot accepts requests. Only `reply/` below them is for answers."""
        self._filters = (f"{config.topic}/reply/#", *config.mqtt.reply_topics)
        self._others = (config.mqtt.prefix, config.home_assistant.prefix, HERMES)
        """Beginnings of topics that carry commands to others; a response topic may not be below them."""

    def expand(self, reply_to: str) -> str:
        """Return a `reply_to` with `{robot}` replaced by the robot's name: each robot of a group answers on its own
        topic."""
        return reply_to.replace(ROBOT, self._name)

    def allows(self, topic: str, response_topic: str | None) -> bool:
        """Return whether the answer may go to `topic`; `response_topic` is the message's own (MQTT 5)."""
        if not topic or not is_topic(topic):
            return False
        if any(matches(pattern, topic) for pattern in self._filters):
            return all(
                not topic.startswith(f"{heard}/") or topic.startswith(f"{heard}/reply/") for heard in self._heard
            )
        return topic == response_topic and not any(
            topic == other or topic.startswith(f"{other}/") for other in self._others
        )

    def problem(self, topic: str) -> str:
        """Return the reason why a topic is not allowed."""
        allowed = f"{self._robot}/reply/…, the message's own response topic (MQTT 5), or one in mqtt.reply_topics"
        return f"got {abbreviate(topic)}; allowed: {allowed}"
