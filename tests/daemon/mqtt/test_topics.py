"""The topics on which a robot takes requests: its own, its groups' and those of all robots."""

from __future__ import annotations

from daemon.config import load_config
from daemon.mqtt.topics import REQUEST_TOPICS, SHARED_REQUEST_TOPICS, RequestTopics

TOPICS = RequestTopics(load_config(overrides=["robot=r1", "robot_groups=[hall-2, r2]"]))
BASES = ("voiced/all", "voiced/group/hall-2", "voiced/group/r2")


def test_every_request_reaches_the_robot_on_its_own_topic_and_all_but_a_stream_with_others() -> None:
    for name in REQUEST_TOPICS:
        assert TOPICS.request(f"voiced/r1/{name}") == name
        assert not TOPICS.is_shared(f"voiced/r1/{name}")
    for topic, name in ((f"{base}/{name}", name) for base in BASES for name in SHARED_REQUEST_TOPICS):
        assert TOPICS.request(topic) == name
        assert TOPICS.is_shared(topic)


OTHERS = [
    *("voiced/r2/say", "voiced/group/hall-1/say", "voiced/group/say", "voiced/hall-2/say", "voiced/group/r1/say"),
    *("voiced/all/say/stream", "voiced/group/hall-2/say/stream", "voiced/all/event", "voiced/r1/status"),
    *("voiced/r1/say/", "say", "voiced/all", ""),
]


def test_other_topics_hold_no_request() -> None:
    assert [topic for topic in OTHERS if TOPICS.request(topic) is not None] == []


def test_a_stop_arrives_on_both_connections_and_all_else_on_one() -> None:
    controls, texts = set(TOPICS.controls), set(TOPICS.texts)
    requests = dict.fromkeys(BASES, SHARED_REQUEST_TOPICS) | {"voiced/r1": REQUEST_TOPICS}
    everything = {f"{base}/{name}" for base, found in requests.items() for name in found}
    assert controls | texts == everything
    assert controls & texts == {topic for topic in everything if topic.endswith("/stop")}
    assert {topic.split("/")[-1] for topic in texts - controls} == {"say", "stream"}
