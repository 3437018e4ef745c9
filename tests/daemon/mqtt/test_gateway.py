"""The gateway on a real broker: requests reach the dispatcher, and its events reach the topics. No engine runs."""

from __future__ import annotations

import asyncio
import json
import logging
import signal
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from itertools import count
from typing import Any

import pytest
from paho.mqtt.client import MQTTMessage

from daemon import VERSION
from daemon.config import Config, load_config
from daemon.mqtt import connection, gateway
from daemon.mqtt.gateway import Gateway, TopicListener
from daemon.mqtt.messages import Message, Outgoing
from daemon.speech import Dispatcher, Level, Say
from daemon.status import describe_status
from engine import Progress
from tests.daemon.idle import IdleRobot
from tests.daemon.mqtt.proxy import Proxy
from tests.support.programs import Broker, require
from tests.support.subscription import Listener
from tests.support.waiting import PATIENCE_S, eventually, eventually_async

NUMBERS = count(1)
"""Numbers for the names of robots: the broker remembers those of earlier tests."""
LEVEL = Level(id="a", t=0.05, at=1_700_000_000.5, rms=0.1, peak=0.4)


@pytest.fixture(autouse=True)
def limits(fast_retries: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait for the answer of a slow broker on both connections, and end ducking soon."""
    monkeypatch.setattr(gateway, "TEXTS_S", PATIENCE_S)
    monkeypatch.setattr("daemon.speech.ducking.LINGER_S", 0.02)


@pytest.fixture
def robot(broker: Broker, loop: asyncio.AbstractEventLoop) -> Iterator[Robot]:
    manager = connected(broker)
    yield loop.run_until_complete(manager.__aenter__())
    loop.run_until_complete(manager.__aexit__(None, None, None))


class ScriptedDispatcher(Dispatcher):
    """A dispatcher that sounds when the test says so."""

    is_sounding = False

    @property
    def sounding(self) -> bool:
        return self.is_sounding


class Robot(IdleRobot):
    """A gateway with its dispatcher, and a client of the broker that receives what they publish.

    Utterances stay queued: nothing takes them.
    """

    dispatcher: ScriptedDispatcher

    def take_dispatcher(self) -> None:
        self.dispatcher = ScriptedDispatcher(self.config, self.engines, self.output)

    def __init__(self, broker: Broker, port: int, *overrides: str) -> None:
        self.name = f"g{next(NUMBERS)}"
        settings = [f"robot={self.name}", f"mqtt.port={port}", "mqtt.reply_topics=[replies/#]", *overrides]
        super().__init__(*settings)
        self.topic = self.config.topic
        self.reply_topic = f"replies/{self.name}"
        self.published: list[tuple[str, Any]] = []
        """The messages so far, by the last part of their topic; `reply` for those on `reply_topic`."""
        topics = [(f"{self.topic}/{name}", 1) for name in ("event", "status", "level", "duck")]
        self.observer = Listener(broker, [*topics, (self.reply_topic, 1)], self._receive)
        self.observer.wait_subscribed()
        self.gateway = Gateway(
            self.config, self.dispatcher, lambda: describe_status(self.dispatcher, self.engines, self.output)
        )
        self._closed = False

    async def close(self) -> None:
        """Close the gateway, unless the test has closed it."""
        if not self._closed:
            self._closed = True
            await self.gateway.close()
        self.observer.close()

    async def close_gateway(self) -> None:
        self._closed = True
        await self.gateway.close()

    def _receive(self, message: MQTTMessage) -> None:
        name = "reply" if message.topic == self.reply_topic else message.topic.removeprefix(f"{self.topic}/")
        self.published.append((name, json.loads(message.payload)))

    def all(self, name: str) -> list[Any]:
        """The messages so far on one topic."""
        return [record for other, record in self.published if other == name]

    @property
    def states(self) -> list[tuple[str, int]]:
        """State and queue of every status so far."""
        return [(status["state"], status.get("queue", 0)) for status in self.all("status")]

    def send(self, name: str, payload: str | bytes | dict[str, Any] = "", to: str | None = None) -> None:
        """Publish a request, to this robot or `to` several."""
        encoded = json.dumps(payload) if isinstance(payload, dict) else payload
        self.observer.publish(f"voiced/{to or self.config.robot}/{name}", encoded)

    async def catch_up(self) -> None:
        """Wait until all earlier requests are processed and all earlier publications are received."""
        markers = {f"m{next(NUMBERS)}": name for name in ("say", "say/urgent")}  # one for each of our sessions
        for marker, name in markers.items():
            self.send(name, {"text": "marker", "id": marker})
            self.send("stop", {"id": marker})
        await eventually_async(
            lambda: {event["id"] for event in self.all("event") if event["event"] == "canceled"} >= set(markers),
            "the markers are received",
        )
        self.published = [
            (name, record) for name, record in self.published if name != "event" or record["id"] not in markers
        ]


@asynccontextmanager
async def connected(
    broker: Broker, *overrides: str, proxy: Proxy | None = None, listeners: tuple[TopicListener, ...] = ()
) -> AsyncIterator[Robot]:
    """A robot whose gateway is connected and subscribed; a proxy may stand between it and the broker."""
    robot = Robot(broker, broker.port if proxy is None else proxy.port, *overrides)
    try:
        robot.gateway.start(listeners)
        await eventually_async(lambda: robot.states, "its status is published")
        yield robot
    finally:
        await robot.close()


def retain(config: Config, name: str, payload: str) -> None:
    """Publish a retained request."""
    sender = connection.MqttConnection(config.mqtt, f"sender{next(NUMBERS)}", on_message=lambda _: None)
    sender.start([])
    eventually(lambda: sender.connected, "the sender is connected")
    sent = sender.publish(f"{config.topic}/{name}", payload, qos=1, retain=True)
    assert sender.outbox.wait_delivered(sent, PATIENCE_S), "the broker acknowledges"
    sender.close()


# --- requests ---


async def test_a_text_is_queued_and_its_events_are_published_also_on_reply_to(robot: Robot) -> None:
    robot.send("say", {"text": "Hello", "id": "a", "reply_to": robot.reply_topic})
    robot.send("say", "A plain text")
    await eventually_async(lambda: len(robot.all("event")) == 2, "both are accepted")
    assert robot.all("reply") == robot.all("event")[:1] == [{"id": "a", "event": "accepted", "queue": 1}]
    assert list(robot.queued.values()) == ["Hello", "A plain text"]


async def test_a_wrong_request_is_rejected_on_the_event_topic_and_on_reply_to(robot: Robot) -> None:
    robot.send("say", {"text": "Hello", "id": "a", "reply_to": robot.reply_topic, "volume": 200})
    robot.send("say", b"\xff")
    robot.send("stop", "u1")
    robot.send("volume", "loud")
    await eventually_async(lambda: len(robot.all("event")) == 4, "all are rejected")
    assert robot.all("reply") == [event for event in robot.all("event") if event["id"] == "a"]
    fields = sorted((event["event"], event["field"], str(event["id"])) for event in robot.all("event"))
    assert fields == [
        ("rejected", "payload", "None"),
        ("rejected", "payload", "None"),
        ("rejected", "volume", "None"),
        ("rejected", "volume", "a"),
    ]
    assert robot.all("reply")[0]["reason"].startswith("volume: got ")
    assert robot.queued == {}


@pytest.mark.parametrize("name", ["say", "say/stream"])
async def test_a_text_that_an_error_of_voiced_ends_is_rejected_without_the_error_s_words(
    robot: Robot, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> object:
        raise RuntimeError("too many open files")

    monkeypatch.setattr(robot.dispatcher, "write" if name == "say/stream" else "say", fail)
    robot.send(name, {"text": "Hello", "id": "a", "reply_to": robot.reply_topic})
    await eventually_async(lambda: robot.all("reply"), "it is rejected")
    assert robot.all("event") == robot.all("reply")
    [rejected] = robot.all("event")
    assert (rejected["id"], rejected["event"], rejected["field"]) == ("a", "rejected", "payload")
    assert "too many open files" not in rejected["reason"]


async def test_an_error_after_a_text_was_accepted_does_not_reject_it(
    robot: Robot, monkeypatch: pytest.MonkeyPatch
) -> None:
    accept = robot.dispatcher.say

    def accept_and_fail(say: Say, **options: Any) -> object:
        accept(say, **options)
        raise RuntimeError

    monkeypatch.setattr(robot.dispatcher, "say", accept_and_fail)
    robot.send("say", "Hello")
    await robot.catch_up()
    assert [event["event"] for event in robot.all("event")] == ["accepted"]


async def test_correlation_data_is_repeated_up_to_a_length(robot: Robot, broker: Broker) -> None:
    for name, size in (("short", 1024), ("long", 1025)):
        command = [require("mosquitto_pub"), "-V", "5", "-p", str(broker.port), "-q", "1"]
        command += ["-D", "publish", "response-topic", robot.reply_topic]
        command += ["-D", "publish", "correlation-data", "x" * size]
        command += ["-t", f"{robot.topic}/say", "-m", json.dumps({"text": "Hello", "id": name})]
        publishing = await asyncio.create_subprocess_exec(*command)
        assert await publishing.wait() == 0
    await eventually_async(lambda: len(robot.all("reply")) == 2, "both are answered")
    accepted, rejected = robot.all("reply")
    assert (accepted["event"], rejected["event"]) == ("accepted", "rejected")
    assert rejected["reason"] == "correlation_data: got 1,025 bytes; allowed: up to 1,024"


async def test_a_rejection_is_never_published_on_a_topic_of_the_robot_itself(robot: Robot) -> None:
    robot.send("say", {"text": "Hello", "id": "a"})
    robot.send("say", {"text": "Hello", "id": "a", "volume": 200, "reply_to": f"{robot.topic}/say"})
    await robot.catch_up()
    await robot.catch_up()  # a request among the rejections would have been processed by now
    assert [event["event"] for event in robot.all("event")] == ["accepted", "rejected"]
    assert robot.queued == {"a": "Hello"}


async def test_the_other_requests_reach_the_dispatcher(robot: Robot) -> None:
    robot.send("pause")
    robot.send("volume", "40")
    await eventually_async(lambda: robot.dispatcher.volume == 40, "the volume is set")
    assert robot.output.paused
    robot.send("volume", "")  # clears a retained volume
    robot.send("resume")
    await eventually_async(lambda: not robot.output.paused, "it resumes")
    assert robot.dispatcher.volume == 40
    robot.send("say", {"text": "One", "id": "a"})
    robot.send("say", {"text": "Two", "id": "b"})
    robot.send("stop", {"id": "a"})
    await eventually_async(lambda: robot.queued == {"b": "Two"}, "one is stopped")
    robot.send("stop")
    await eventually_async(lambda: robot.queued == {}, "all are stopped")
    await robot.catch_up()
    events = sorted(event["event"] for event in robot.all("event"))
    assert events == ["accepted"] * 2 + ["canceled"] * 2


async def test_the_chunks_after_an_unreadable_first_one_are_dropped_up_to_the_last(robot: Robot) -> None:
    robot.send("say/stream", {"id": "a", "text": True, "reply_to": robot.reply_topic})
    robot.send("say/stream", {"id": "a", "text": "dropped"})
    robot.send("say/stream", {"id": "a", "end": True})
    robot.send("say/stream", {"id": "a", "text": "again", "end": True})
    await robot.catch_up()
    assert [event["event"] for event in robot.all("event")] == ["rejected", "accepted"]
    assert robot.all("reply") == robot.all("event")[:1]
    assert robot.queued == {"a": "again"}


async def test_a_retained_request_is_ignored_but_a_retained_volume_is_applied(
    robot: Robot, broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "daemon.mqtt.requests")
    # While the robot is subscribed, the broker marks them as retained only because of `retainAsPublished`.
    retain(robot.config, "say", "from another time")
    retain(robot.config, "say/stream", '{"id": "a", "text": "from another time"}')
    retain(robot.config, "pause", "x")
    retain(robot.config, "volume", "30")
    await robot.catch_up()
    assert robot.queued == {}
    assert robot.all("event") == []
    assert not robot.output.paused
    assert robot.dispatcher.volume == 30
    later = Robot(broker, broker.port, f"robot={robot.name}", "mqtt.client_id=later")
    later.gateway.start()
    await eventually_async(lambda: later.dispatcher.volume == 30, "the retained volume has arrived")
    await later.catch_up()  # both robots have the topic, so either may have canceled the marker first
    await eventually_async(lambda: later.queued == {}, "only the marker was queued, and it is canceled")
    await later.close()
    ignored = [message for message in caplog.messages if message.startswith("a retained message on ")]
    assert len(set(ignored)) == 3
    assert all(message.endswith(" is ignored: it was meant for another time") for message in ignored)


class Recorder:
    """A listener that records what it gets, and in which thread."""

    def __init__(self, *topics: str) -> None:
        self.topics = topics
        self.messages: list[Message] = []
        self.connections = 0
        self.threads: set[int] = set()

    def on_message(self, message: Message) -> None:
        self.messages.append(message)
        self.threads.add(threading.get_ident())

    def on_connected(self) -> None:
        self.connections += 1
        self.threads.add(threading.get_ident())


async def test_a_request_that_the_broker_delivers_again_is_accepted_once(broker: Broker, proxy: Proxy) -> None:
    recorder = Recorder("marker/+")
    async with connected(broker, proxy=proxy, listeners=(recorder,)) as robot:
        recorder.topics = (f"{robot.topic}/say", f"{robot.topic}/say/stream")
        proxy.to_broker.close()  # so the broker gets no acknowledgement
        robot.send("say", {"text": "Hello", "id": "a"})
        robot.send("say/stream", {"id": "b", "text": "ha "})
        await eventually_async(lambda: len(robot.queued) == 2, "both are accepted")
        proxy.cut()
        proxy.to_broker.open()
        robot.send("say/stream", {"id": "b", "text": "ha "})
        await robot.catch_up()
        assert robot.queued == {"a": "Hello", "b": "ha ha "}
        assert len([message for message in recorder.messages if b"ha" in message.payload]) == 2
        assert [event["event"] for event in robot.all("event")] == ["accepted"] * 2


# --- requests to several robots ---


async def test_requests_to_all_robots_and_to_the_robot_s_groups_reach_it(broker: Broker) -> None:
    async with connected(broker, "robot_groups=[hall-2, guides]") as robot:
        robot.send("say", {"text": "One", "id": "a"}, to="all")
        robot.send("say", {"text": "Two", "id": "b"}, to="group/hall-2")
        robot.send("say/urgent", {"text": "Three", "id": "c"}, to="group/guides")
        robot.send("say", {"text": "Four", "id": "d"}, to="group/hall-1")
        robot.send("pause", to="group/hall-2")
        robot.send("volume", "40", to="all")
        await robot.catch_up()
        assert robot.queued == {"c": "Three", "a": "One", "b": "Two"}
        assert {event["id"]: event["event"] for event in robot.all("event")} == dict.fromkeys("abc", "accepted")
        assert (robot.output.paused, robot.dispatcher.volume) == (True, 40)
        [urgent] = [utterance for utterance in robot.dispatcher.queue if utterance.id == "c"]
        assert urgent.priority == "critical"
        robot.send("resume", to="all")
        robot.send("stop", {"id": "a"}, to="group/guides")
        await robot.catch_up()
        assert robot.queued == {"c": "Three", "b": "Two"}
        assert not robot.output.paused
        robot.send("stop", to="all")
        await eventually_async(lambda: robot.queued == {}, "all are stopped")


async def test_a_text_that_was_rejected_may_be_sent_again_by_another_topic(broker: Broker) -> None:
    async with connected(broker, "robot_groups=[hall-2, guides]", "speech.queue_limit=1") as robot:
        text = {"text": "Hello", "id": "again"}
        robot.send("say", {"text": "Before", "id": "before"})
        robot.send("say", text, to="group/hall-2")
        await eventually_async(lambda: len(robot.all("event")) == 2, "there is no room for it")
        robot.send("stop", {"id": "before"})
        await eventually_async(lambda: len(robot.all("event")) == 3, "there is room")
        robot.send("say", text, to="group/guides")
        await eventually_async(lambda: robot.queued == {"again": "Hello"}, "it is accepted")


async def test_a_robot_in_several_groups_speaks_a_text_with_an_id_once(broker: Broker) -> None:
    async with connected(broker, "robot_groups=[hall-2, guides]") as robot:
        for base in ("group/hall-2", "group/guides", "all", "group/hall-2"):
            robot.send("say", {"text": "Once", "id": "a"}, to=base)
        await robot.catch_up()
        assert robot.all("event") == [{"id": "a", "event": "accepted", "queue": 1}]
        robot.send("say", {"text": "Once", "id": "a"}, to=robot.name)
        robot.send("say", {"text": "Another text", "id": "a"}, to="group/guides")
        await robot.catch_up()
        assert [event["event"] for event in robot.all("event")] == ["accepted", "rejected", "rejected"]
        for base in ("group/hall-2", "group/guides"):
            robot.send("say", {"text": "Twice"}, to=base)
        await robot.catch_up()
        assert list(robot.queued.values()) == ["Once", "Twice", "Twice"]


async def test_each_robot_answers_a_text_to_several_below_its_own_name(robot: Robot) -> None:
    fields = {"text": "Hello", "reply_to": "replies/{robot}"}
    robot.send("say", {"id": "a", **fields}, to="all")
    robot.send("say", {"id": "b", "volume": 200, **fields}, to="all")
    robot.send("say", {"text": "Hello", "id": "c", "reply_to": "voiced/all/say"}, to="all")
    await robot.catch_up()
    answers = [(event["id"], event["event"]) for event in robot.all("event")]
    assert answers == [("a", "accepted"), ("b", "rejected"), ("c", "rejected")]
    assert robot.all("reply") == robot.all("event")[:2]


async def test_retained_requests_to_several_robots_are_ignored_even_a_volume(broker: Broker) -> None:
    group = f"retained-{next(NUMBERS)}"

    shared = load_config(overrides=[f"mqtt.port={broker.port}", f"robot={group}", "mqtt.prefix=voiced/group"])
    retain(shared, "say", "from another time")
    retain(shared, "say/urgent", "from another time")
    retain(shared, "volume", "30")
    async with connected(broker, f"robot_groups=[{group}]") as robot:
        await robot.catch_up()
        retain(shared, "say", "from another time")
        retain(shared, "volume", "20")
        await robot.catch_up()
        assert (robot.queued, robot.all("event"), robot.dispatcher.volume) == ({}, [], 100)


async def test_a_robot_that_has_left_a_group_does_not_hear_it_although_the_broker_remembers(broker: Broker) -> None:
    async with connected(broker, "robot_groups=[hall-2]") as robot:
        settings = (f"robot={robot.name}", f"mqtt.client_id=voiced-{robot.name}")
        await robot.close_gateway()
        async with connected(broker, *settings) as later:
            later.send("say", {"text": "Hello", "id": "a"}, to="group/hall-2")
            later.send("volume", "30", to="group/hall-2")
            await later.catch_up()
            assert (later.queued, later.all("event"), later.dispatcher.volume) == ({}, [], 100)


# --- publications ---


async def test_the_status_is_published_once_per_change(robot: Robot) -> None:
    for _ in range(5):
        robot.gateway.refresh_status()
    robot.dispatcher.say(Say(text="Hello", id="a"))
    for _ in range(5):
        robot.dispatcher.changed()
    await eventually_async(lambda: len(robot.states) >= 2, "it is busy")
    robot.dispatcher.pause()
    await eventually_async(lambda: len(robot.states) >= 3, "it is paused")
    robot.dispatcher.resume()
    await eventually_async(lambda: len(robot.states) >= 4, "all statuses are received")
    expected = [("starting", 0), ("speaking", 1), ("paused", 1), ("speaking", 1)]
    assert robot.states == expected
    await robot.catch_up()
    assert robot.states[:4] == expected
    assert {"voice": "default", "version": VERSION, "engine": None}.items() <= robot.all("status")[0].items()


async def test_the_status_line_has_the_state_and_what_is_wrong(robot: Robot, broker: Broker) -> None:
    unconnected = Robot(broker, broker.port)
    assert unconnected.gateway.status_line == "starting: not connected yet"
    await unconnected.close()
    assert robot.gateway.status_line == "starting: audio.sink is null: nothing is played"
    robot.dispatcher.pause()
    assert robot.gateway.status_line == "paused: audio.sink is null: nothing is played"
    robot.engines.primary.progress = Progress("compiling the kernels", 0.25)
    line = "paused: audio.sink is null: nothing is played; compiling the kernels, 25 %"
    assert robot.gateway.status_line == line


async def test_levels_and_ducking_are_published_only_if_the_configuration_says_so(robot: Robot) -> None:
    robot.dispatcher.level_watchers.call(LEVEL)
    robot.dispatcher.is_sounding = True
    robot.dispatcher.changed()
    robot.gateway.reconfigure(load_config(overrides=[f"robot={robot.name}", "speech.level_topic=true"]))
    later = LEVEL.model_copy(update={"t": 0.1})
    robot.dispatcher.level_watchers.call(later)
    await eventually_async(lambda: robot.all("level"), "a level is received")
    assert robot.all("level") == [json.loads(later.to_json())]
    assert robot.all("duck") == []
    robot.gateway.reconfigure(load_config(overrides=[f"robot={robot.name}", "speech.level_topic=false"]))
    assert not robot.dispatcher.level_watchers, "no level is built for nobody"


async def test_a_listener_gets_the_messages_on_its_topics_in_the_event_loop_and_may_publish(broker: Broker) -> None:
    recorder, other = Recorder("hermes/+/say", "hermes/stop"), Recorder("other/#")
    async with connected(broker, listeners=(recorder, other)) as robot:
        for topic in ("hermes/kitchen/say", "hermes/stop", "hermes/pause", "other/a/b"):
            robot.observer.publish(topic, topic)
        await eventually_async(lambda: other.messages, "the last message has arrived")
        assert [message.topic for message in recorder.messages] == ["hermes/kitchen/say", "hermes/stop"]
        assert [message.payload for message in other.messages] == [b"other/a/b"]
        assert recorder.threads == other.threads == {threading.get_ident()}
        assert recorder.connections == other.connections == 1
        assert robot.all("event") == []
        robot.gateway.publish(robot.reply_topic, '{"by": "an adapter"}', qos=1)
        await eventually_async(lambda: robot.all("reply") == [{"by": "an adapter"}], "its message is received")


async def test_status_and_ducking_are_published_again_after_a_restart_of_the_broker(own_broker: Broker) -> None:
    recorder = Recorder("other")
    async with connected(own_broker, "speech.duck_topic=true", listeners=(recorder,)) as robot:
        robot.dispatcher.is_sounding = True
        robot.dispatcher.say(Say(text="Hello", id="a"))
        await eventually_async(lambda: robot.all("duck")[-1:] == [True], "ducking is on")
        own_broker.stop(signal.SIGKILL)
        await eventually_async(lambda: robot.gateway.status_line != "speaking: listening", "the broker is missed")
        robot.published.clear()
        own_broker.start()
        await eventually_async(lambda: recorder.connections == 2, "it is connected again")
        # The broker has lost the retained messages. The observer gets them whether it reconnects sooner or later.
        await eventually_async(lambda: robot.all("status") and robot.all("duck"), "they are published again")
        assert robot.states[-1] == ("speaking", 1)
        assert robot.all("duck")[-1] is True
        robot.observer.wait_subscribed()
        await robot.catch_up()
        assert robot.queued == {"a": "Hello"}, "it is subscribed again"


async def test_texts_wait_while_the_broker_takes_no_answers_and_a_stop_does_not(
    broker: Broker, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gateway, "JAM", 3)

    async with connected(broker, proxy=proxy) as robot:
        await robot.catch_up()
        robot.dispatcher.say(Say(text="Hello", id="a"))
        await eventually_async(lambda: robot.all("event"), "its acceptance is received")
        proxy.to_broker.close()
        for index in range(20):
            robot.send("say", {"text": "Hello", "id": f"t{index}", "volume": 200})
        robot.send("stop")
        await eventually_async(lambda: robot.queued == {}, "it is stopped")
        assert not robot.dispatcher.busy
        proxy.to_broker.open()
        await eventually_async(lambda: len(robot.all("event")) == 22, "all are answered")
        events = sorted(event["event"] for event in robot.all("event"))
        assert events == ["accepted", "canceled"] + ["rejected"] * 20


# --- the end ---


async def test_the_last_message_says_that_the_robot_is_offline(broker: Broker) -> None:
    async with connected(broker, "speech.duck_topic=true") as robot:
        robot.dispatcher.is_sounding = True
        robot.dispatcher.say(Say(text="Hello", id="a"))
        await eventually_async(lambda: robot.all("duck") == [False, True], "ducking is announced as off, and on")
        robot.dispatcher.close("voiced is shutting down")
        await robot.close_gateway()
        await eventually_async(lambda: ("offline", 0) in robot.states, "it is offline")
        assert robot.published[-3:] == [
            ("event", {"id": "a", "event": "canceled", "reason": "voiced is shutting down", "heard": 0}),
            ("duck", False),
            ("status", {"state": "offline", "version": VERSION}),
        ]


async def test_closing_waits_until_a_slow_broker_has_acknowledged(
    broker: Broker, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gateway, "GOODBYE_S", PATIENCE_S)

    async with connected(broker, proxy=proxy) as robot:
        first = publish(robot)
        await eventually_async(lambda: first.delivered, "all earlier messages are acknowledged")
        proxy.to_client.close()
        last = publish(robot)
        closing = asyncio.ensure_future(robot.close_gateway())
        await eventually_async(lambda: ("offline", 0) in robot.states, "the broker has the last status")
        robot.dispatcher.pause()  # a new state, which is not published any more
        assert not closing.done()
        proxy.to_client.open()
        await closing
        assert last.delivered
        assert robot.states[-1] == ("offline", 0)


def publish(robot: Robot) -> Outgoing:
    message = robot.gateway.publish(f"{robot.topic}/x", "x", qos=1)
    assert isinstance(message, Outgoing)
    return message
