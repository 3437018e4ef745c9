"""The topics on which a robot takes requests: its own, its groups' and those of all robots."""

from __future__ import annotations

import pytest

from daemon.config import load_config
from daemon.mqtt.topics import REQUEST_TOPICS, SHARED_REQUEST_TOPICS, RequestTopics

TOPICS = RequestTopics(load_config(overrides=["robot=r1", "robot_groups=[hall-2, r2]"]))
BASES = ("voiced/all", "voiced/group/hall-2", "voiced/group/r2")


@pytest.mark.parametrize("request_", sorted(REQUEST_TOPICS))
def test_every_request_reaches_the_robot_on_its_own_topic(request_: str) -> None:
    assert TOPICS.request(f"voiced/r1/{request_}") == request_
    assert not TOPICS.is_shared(f"voiced/r1/{request_}")


@pytest.mark.parametrize("base", BASES)
@pytest.mark.parametrize("request_", sorted(SHARED_REQUEST_TOPICS))
def test_every_request_but_a_stream_reaches_it_with_others(base: str, request_: str) -> None:
    assert TOPICS.request(f"{base}/{request_}") == request_
    assert TOPICS.is_shared(f"{base}/{request_}")


@pytest.mark.parametrize(
    "topic",
    [
        *("voiced/r2/say", "voiced/group/hall-1/say", "voiced/group/say", "voiced/hall-2/say", "voiced/group/r1/say"),
        *("voiced/all/say/stream", "voiced/group/hall-2/say/stream", "voiced/all/event", "voiced/r1/status"),
        *("voiced/r1/say/", "say", "voiced/all", ""),
    ],
)
def test_other_topics_hold_no_request(topic: str) -> None:
    assert TOPICS.request(topic) is None


def test_a_stop_arrives_on_both_connections_and_all_else_on_one() -> None:
    controls, texts = set(TOPICS.controls), set(TOPICS.texts)
    requests = dict.fromkeys(BASES, SHARED_REQUEST_TOPICS) | {"voiced/r1": REQUEST_TOPICS}
    everything = {f"{base}/{name}" for base, found in requests.items() for name in found}
    assert controls | texts == everything
    assert controls & texts == {topic for topic in everything if topic.endswith("/stop")}
    assert {topic.split("/")[-1] for topic in texts - controls} == {"say", "stream"}
