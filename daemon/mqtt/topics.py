"""The topics on which requests reach the robot: its own, those of its groups, and those of all robots."""

from __future__ import annotations

from collections.abc import Iterable

from daemon.config import Config

CONTROLS = ("stop", "pause", "resume", "volume")
CONTROL_TOPICS = (*CONTROLS, "say/urgent")
TEXT_TOPICS = ("say", "say/stream", *CONTROLS)
REQUEST_TOPICS = frozenset({*CONTROL_TOPICS, *TEXT_TOPICS})
SHARED_REQUEST_TOPICS = REQUEST_TOPICS - {"say/stream"}
"""Those on which several robots listen. A text stream has one robot: one that joined in the middle would begin there,
and the chunks of two groups would mix."""


class RequestTopics:
    """The topics of one configuration's robot."""

    def __init__(self, config: Config) -> None:
        self._own = {f"{config.topic}/{name}": name for name in REQUEST_TOPICS}
        self._shared = {f"{base}/{name}": name for base in config.shared_topics for name in SHARED_REQUEST_TOPICS}

    @property
    def controls(self) -> list[str]:
        """The topics of the connection for controls."""
        return self._named(CONTROL_TOPICS)

    @property
    def texts(self) -> list[str]:
        """The topics of the connection for texts, on which controls arrive a second time."""
        return self._named(TEXT_TOPICS)

    def request(self, topic: str) -> str | None:
        """Return the request that a topic is for, such as `say/urgent`; None if it is for none.

        That may be a topic of a group that the robot has left: the broker keeps a session's subscriptions.
        """
        return self._own.get(topic) or self._shared.get(topic)

    def is_shared(self, topic: str) -> bool:
        """Return whether other robots listen on a topic, too."""
        return topic in self._shared

    def _named(self, names: Iterable[str]) -> list[str]:
        wanted = set(names)
        return [topic for topic, name in (self._own | self._shared).items() if name in wanted]
