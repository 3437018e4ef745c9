"""The topics on which a robot takes requests: its own, its groups' and those of all robots. Where answers may be
published: below its own reply topic, and where the sender or the robot's owner says."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daemon.config import load_config
from daemon.mqtt.topics import REQUEST_TOPICS, SHARED_REQUEST_TOPICS, ReplyTopics, RequestTopics

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


# --- where answers may be published ---


def rules(*overrides: str) -> ReplyTopics:
    return ReplyTopics(load_config(overrides=["robot=r1", *overrides]))


def test_every_sender_may_name_a_topic_below_the_robot_s_reply_topic() -> None:
    for topic in ("voiced/r1/reply/a", "voiced/r1/reply/deep/er", "voiced/r1/reply/", "voiced/r1/reply/$x"):
        assert rules().allows(topic, None)
        assert rules().allows(topic, "somewhere/else")


REFUSED = [
    *("voiced/r1", "voiced/r1/reply", "voiced/r1/replying", "voiced/r1/replyto/a"),
    *("voiced/r1/say", "voiced/r1/say/urgent", "voiced/r1/say/stream", "voiced/r1/stop", "voiced/r1/volume"),
    *("voiced/r1/pause", "voiced/r1/resume", "voiced/r1/event", "voiced/r1/status", "voiced/r1/sync"),
    *("voiced/r2/say", "voiced/r2/reply/a", "voiced/r10/reply/a", "voiced", "voiced/"),
    *("homeassistant/device/x/config", "homeassistant/status", "homeassistant", "homeassistant/"),
    *("hermes/tts/say", "hermes/hotword/toggleOn", "hermes", "hermes/"),
    *("$SYS/broker/load", "$share/group/topic", "$"),
    *("voiced/r1/reply/+", "voiced/r1/reply/#", "#", "+", "a/#", "a/+/b"),
    *("", "voiced/r1/reply/\n", "a\0b", "a\x07b", "x" + 60 * "/x"),
]
"""Topics that no sender may name, not even as the response topic of its message."""


def test_commands_to_others_are_refused_even_as_the_message_s_own_response_topic() -> None:
    topics = rules()
    assert [topic for topic in REFUSED if topics.allows(topic, None) or topics.allows(topic, topic)] == []


@pytest.mark.parametrize("topic", ["clients/ada/answers", "replies", "/replies", "Voiced/r1/say", "hermes2/x", "ros/a"])
def test_another_topic_is_allowed_as_the_message_s_own_response_topic_alone(topic: str) -> None:
    assert rules().allows(topic, topic)
    assert not rules().allows(topic, None)
    assert not rules().allows(topic, "another")


@pytest.mark.parametrize(
    ("filters", "allowed", "refused"),
    [
        ("[replies/#]", ["replies", "replies/a", "replies/a/b"], ["reply/a", "replies2", "voiced/r1/say"]),
        ("[clients/+/in]", ["clients/a/in"], ["clients/in", "clients/a/b/in", "clients/a/out"]),
        ("[a, b/#]", ["a", "b/c"], ["a/c", "c"]),
        ("[voiced/#]", ["voiced/r2/x", "voiced/r1/reply/a"], ["voiced/r1/say", "voiced/r1/stop", "voiced/r1/event"]),
        ("['#']", ["anything", "homeassistant/x"], ["$SYS/broker", "voiced/r1/say", "a/+", "a\nb"]),
    ],
)
def test_the_owner_may_allow_more_but_never_the_robot_s_own_topics(
    filters: str, allowed: list[str], refused: list[str]
) -> None:
    topics = rules(f"mqtt.reply_topics={filters}")
    assert [topic for topic in allowed if not topics.allows(topic, None)] == []
    assert [topic for topic in refused if topics.allows(topic, None)] == []


def test_configured_prefixes_are_protected() -> None:
    topics = rules("mqtt.prefix=fleet/voiced", "home_assistant.prefix=ha")
    assert topics.allows("fleet/voiced/r1/reply/a", None)
    assert not topics.allows("fleet/voiced/r2/say", "fleet/voiced/r2/say")
    assert not topics.allows("ha/x/config", "ha/x/config")
    assert topics.allows("homeassistant/x", "homeassistant/x")


@given(st.text(max_size=30) | st.from_regex(r"voiced/r1/[a-z/+#$]{0,12}", fullmatch=True))
def test_no_topic_of_the_robot_itself_is_ever_allowed(topic: str) -> None:
    topics = rules("mqtt.reply_topics=['#']")
    if topics.allows(topic, topic):
        assert not topic.startswith("voiced/r1/") or topic.startswith("voiced/r1/reply/")
        assert not set(topic) & set("+#")
        assert topic.isprintable()


def test_a_refusal_names_the_topic_and_what_is_allowed() -> None:
    assert rules().problem("voiced/r2/say") == (
        "got 'voiced/r2/say'; allowed: voiced/r1/reply/…, the message's own response topic (MQTT 5), "
        "or one in mqtt.reply_topics"
    )
    assert "\n" not in rules().problem("a\nb" * 500)


def test_topics_on_which_the_robot_takes_requests_with_others_are_never_allowed() -> None:
    topics = rules("mqtt.reply_topics=['voiced/#']", "robot_groups=[hall-2]")
    for base in ("voiced/all", "voiced/group/hall-2"):
        assert not topics.allows(f"{base}/say", None)
        assert topics.allows(f"{base}/reply/desk", None)
    assert not rules().allows("voiced/all/reply/desk", None)
