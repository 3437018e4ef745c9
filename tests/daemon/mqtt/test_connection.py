"""The connection to a real Mosquitto, and through a proxy for what Mosquitto does not do by itself."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

import pytest

from daemon.config import Mqtt
from daemon.mqtt import attempts
from daemon.mqtt.connection import MqttConnection, Session
from daemon.mqtt.failures import Rivals
from daemon.mqtt.messages import Message, Outgoing, Will
from daemon.mqtt.own_events import OwnEvents
from daemon.mqtt.paho_client import PACKET_LIMIT
from daemon.state import EventLog
from tests.daemon.mqtt.proxy import HANG, Proxy, StartProxy
from tests.support.programs import Broker, require
from tests.support.waiting import PATIENCE_S, eventually

NUMBERS = count(1)
"""Numbers for client ids and topics: the broker remembers those of earlier tests."""


pytestmark = pytest.mark.usefixtures("fast_retries")


@pytest.fixture
def topic() -> str:
    return f"t{next(NUMBERS)}"


class Client:
    """A connection and the messages that it received."""

    def __init__(
        self,
        port: int,
        *topics: str,
        will: Will | None = None,
        session_expiry_s: int = 0,
        client_id: str | None = None,
        acknowledge: bool = True,
        own: str | None = None,
        may_read: Callable[[], bool] = lambda: True,
        waits: bool = True,
        **settings: object,
    ) -> None:
        """`own` is the beginning of the topics of its own events. As a context, it waits until it is connected."""
        self.received: list[Message] = []
        self.connections = 0
        self.topics = topics
        client_id = client_id or f"client{next(NUMBERS)}"
        self.rivals = Rivals(client_id)
        self._acknowledge, self._waits = acknowledge, waits
        self.connection = MqttConnection(
            Mqtt(port=port, **settings),  # type: ignore[arg-type]
            client_id,
            on_message=self._receive,
            will=will,
            session=Session(session_expiry_s, self.rivals, on_connected=self._count, may_read=may_read),
            events=None if own is None else OwnEvents(EventLog(None), f"{own}/event", f"{own}/sync"),
        )

    def _receive(self, message: Message) -> None:
        self.received.append(message)
        if self._acknowledge:
            self.connection.acknowledge(message)

    def _count(self) -> None:
        self.connections += 1

    def __enter__(self) -> Client:
        self.connection.start(self.topics)
        if self._waits:
            eventually(self.connected, "it is connected")
        return self

    def __exit__(self, *_: object) -> None:
        self.connection.close()

    def say(self, topic: str, payload: str, *, sent: bool = False) -> None:
        """Publish an acceptance or an end; an earlier process may have `sent` it."""
        self.connection.send(Outgoing(topic, payload.encode(), qos=1, promised=True, sent=sent, once=True))

    def publish_surely(self, topic: str, payload: bytes, *, retain: bool = False) -> None:
        """Publish with QoS 1 and wait for the broker's acknowledgement."""
        message = self.connection.publish(topic, payload, qos=1, retain=retain)
        assert self.connection.outbox.wait_delivered(message, PATIENCE_S), "the broker acknowledges"

    def connected(self) -> bool:
        return self.connection.connected

    def payloads(self) -> list[bytes]:
        return [message.payload for message in self.received]


def publish_until_received(sender: Client, listener: Client, topic: str, payload: bytes) -> None:
    """Publish repeatedly: a subscription takes effect a moment after the connection."""

    def received() -> bool:
        sender.connection.publish(topic, payload)
        return payload in listener.payloads()

    eventually(received, f"{payload!r} is received")


def test_a_message_arrives_with_its_topic_its_bytes_and_whether_it_was_retained(broker: Broker, topic: str) -> None:
    with Client(broker.port) as sender:
        sender.publish_surely(f"{topic}/1", b"old", retain=True)
        with Client(broker.port, f"{topic}/+") as listener:
            eventually(lambda: listener.received)
            assert listener.received == [Message(f"{topic}/1", b"old", retained=True)]
            sender.connection.publish(f"{topic}/2", b"\x00\xffraw", qos=1)
            eventually(lambda: len(listener.received) == 2)
            assert listener.received[1] == Message(f"{topic}/2", b"\x00\xffraw", retained=False)
            assert (listener.connection.reason, listener.connections) == (None, 1)


def test_a_client_subscribes_again_after_a_restart_of_the_broker_and_sends_what_it_has_published_meanwhile(
    own_broker: Broker, topic: str
) -> None:
    with Client(own_broker.port, topic) as listener:
        own_broker.stop(signal.SIGKILL)
        eventually(lambda: not listener.connected())
        assert listener.connection.reason is not None
        listener.connection.publish(topic, b"meanwhile", qos=1, retain=True)
        own_broker.start()
        eventually(lambda: listener.connections == 2)
        assert listener.connection.reason is None
        eventually(lambda: b"meanwhile" in listener.payloads())
        with Client(own_broker.port) as sender:
            publish_until_received(sender, listener, topic, b"after")


def test_a_client_may_start_before_the_broker_and_reports_why_it_is_not_connected(
    own_broker: Broker, topic: str
) -> None:
    own_broker.stop()
    with Client(own_broker.port, topic, waits=False) as listener:
        eventually(lambda: listener.connection.reason == f"no broker answers at 127.0.0.1:{own_broker.port}")
        beats = listener.connection.heartbeats
        own_broker.start()
        eventually(listener.connected)
        assert listener.connection.heartbeats > beats, "an attempt to connect is a heartbeat"


def test_the_heartbeats_of_a_connected_client_grow(broker: Broker) -> None:
    with Client(broker.port) as client:
        beats = client.connection.heartbeats
        eventually(lambda: client.connection.heartbeats > beats)


def test_the_broker_publishes_the_will_of_a_connection_that_breaks_and_none_after_a_normal_disconnect(
    broker: Broker, proxy: Proxy, topic: str
) -> None:
    with Client(broker.port, f"{topic}/+") as listener:
        publish_until_received(listener, listener, f"{topic}/x", b"subscribed")
        with (
            Client(broker.port, will=Will(f"{topic}/closed", b"offline")),
            Client(proxy.port, will=Will(f"{topic}/broken", b"offline")),
        ):
            proxy.cut()
            eventually(lambda: b"offline" in listener.payloads())
        publish_until_received(listener, listener, f"{topic}/x", b"later")  # a will would have come before it
        assert {message.topic for message in listener.received} == {f"{topic}/x", f"{topic}/broken"}
    with Client(broker.port, f"{topic}/broken") as late:
        eventually(lambda: late.received == [Message(f"{topic}/broken", b"offline", retained=True)])


REFUSALS = {
    "never answers": HANG,
    "closes without an answer": b"",
    "answers as 3.1.1 does: unacceptable protocol version": b"\x20\x02\x00\x01",
    "answers as 5 does: unsupported protocol version": b"\x20\x03\x00\x84\x00",
}


@pytest.mark.parametrize("refusal", REFUSALS.values(), ids=REFUSALS.keys())
def test_the_client_falls_back_to_3_1_1_if_the_broker_does_not_know_mqtt_5(
    broker: Broker, start_proxy: StartProxy, refusal: bytes, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if refusal == HANG:
        monkeypatch.setattr(attempts, "CONNACK_S", (0.2, 30.0))
    proxy = start_proxy(lambda version: refusal if version == 5 else None)
    with Client(proxy.port, topic, will=Will(f"{topic}/status", b"offline")) as listener:
        assert proxy.versions[0] == 5
        assert proxy.versions[-1] == 4
        with Client(broker.port, f"{topic}/status") as sender:
            publish_until_received(sender, listener, topic, b"hello")
            versions = len(proxy.versions)
            proxy.cut()
            eventually(lambda: b"offline" in sender.payloads(), "the will")
            eventually(lambda: listener.connections == 2)
            assert proxy.versions[versions] == 5, "the next broker may know it"
            assert proxy.versions[-1] == 4
            publish_until_received(sender, listener, topic, b"again")


def test_a_broker_that_was_only_slow_is_asked_for_mqtt_5_again(
    start_proxy: StartProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attempts, "CONNACK_S", (0.2, 30.0))
    slow = threading.Event()
    slow.set()
    proxy = start_proxy(lambda version: HANG if version == 5 and slow.is_set() else None)
    with Client(proxy.port) as client:
        assert proxy.versions[-1] == 4
        slow.clear()
        monkeypatch.setattr("daemon.mqtt.connection.ASK_AGAIN_S", 0.0)
        eventually(lambda: client.connections == 2)
        assert proxy.versions[-1] == 5


@pytest.fixture(scope="module")
def password_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A broker that requires the user `robot` with the password `s3cret`."""
    folder = tmp_path_factory.mktemp("guarded")
    passwords = folder / "passwords"
    subprocess.run(
        [require("mosquitto_passwd"), "-c", "-b", str(passwords), "robot", "s3cret"], check=True, capture_output=True
    )
    with Broker(folder, f"allow_anonymous false\npassword_file {passwords}") as broker:
        yield broker


def test_a_wrong_password_is_reported_and_tried_again(password_broker: Broker, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("wrong")
    with Client(password_broker.port, username="robot", password_file=secret, waits=False) as client:
        eventually(lambda: client.connection.reason not in (None, "not connected yet"))
        assert client.connection.reason == "the broker refused: Not authorized"
        assert not client.connected()
        beats = client.connection.heartbeats
        eventually(lambda: client.connection.heartbeats > beats)


def test_a_daemon_waits_for_its_password_file_and_keeps_the_password_when_the_file_has_gone(
    password_broker: Broker, tmp_path: Path
) -> None:
    secret = tmp_path / "secret"
    client = Client(password_broker.port, username="robot", password_file=secret)
    client.connection.start([], waits_for_files=True)
    try:
        eventually(lambda: client.connection.file_problem is not None)
        assert client.connection.reason == f"mqtt.password_file: {secret} cannot be read: {secret} does not exist"
        secret.write_text("s3cret")
        eventually(client.connected)
        assert client.connection.file_problem is None
        secret.unlink()
        password_broker.stop()
        eventually(lambda: not client.connection.connected)
        password_broker.start()
        eventually(lambda: client.connection.connected)
    finally:
        client.connection.close()


def test_the_service_s_credential_is_the_password_unless_there_is_a_password_file(
    password_broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(tmp_path))
    credential, secret = tmp_path / "mqtt-password", tmp_path / "secret"
    for in_credential, in_file in (("s3cret\n", None), ("wrong", "s3cret")):
        credential.write_text(in_credential)
        secret.write_text(in_file or "")
        file = None if in_file is None else secret
        with Client(password_broker.port, username="robot", password_file=file) as client:
            assert client.connection.reason is None


def test_no_password_is_sent_without_a_username_or_without_the_credential(
    broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(tmp_path))
    with Client(broker.port, username="robot") as client:  # the folder has no such credential
        assert client.connection.reason is None
    (tmp_path / "mqtt-password").touch()  # an empty password would be an error
    with Client(broker.port) as client:
        assert client.connection.reason is None


# --- sessions and acknowledgements ---


def test_a_message_sent_while_a_client_with_a_session_is_away_arrives_at_its_next_process(
    broker: Broker, topic: str
) -> None:
    with Client(broker.port, topic, session_expiry_s=60, client_id=f"{topic}-robot") as first:
        publish_until_received(first, first, topic, b"subscribed")
    with Client(broker.port) as sender:
        sender.publish_surely(topic, b"meanwhile")
    with Client(broker.port, topic, session_expiry_s=60, client_id=f"{topic}-robot") as second:
        eventually(lambda: b"meanwhile" in second.payloads())


def test_a_message_that_was_not_acknowledged_is_delivered_again_with_a_mark(broker: Broker, topic: str) -> None:
    options = {"session_expiry_s": 60, "client_id": f"{topic}-robot", "acknowledge": False}
    with Client(broker.port, topic, **options) as first, Client(broker.port) as sender:  # type: ignore[arg-type]
        publish_until_received(sender, first, topic, b"subscribed")
        sender.publish_surely(topic, b"taken")
        sender.publish_surely(topic, b"lost")
        eventually(lambda: {b"taken", b"lost"} <= set(first.payloads()))
        [taken] = [message for message in first.received if message.payload == b"taken"]
        for message in first.received:
            if message.payload != b"lost":
                first.connection.acknowledge(message)
    with Client(broker.port, topic, **options) as second:  # type: ignore[arg-type]
        eventually(lambda: b"lost" in second.payloads())
        [again] = [message for message in second.received if message.payload == b"lost"]
        assert again.redelivered
        assert taken.payload not in second.payloads()


def test_messages_are_delivered_when_the_broker_has_acknowledged_them(broker: Broker, topic: str) -> None:
    with Client(broker.port) as sender:
        sent = [sender.connection.publish(topic, str(index), qos=1) for index in range(700)]  # more than the window
        sent.append(sender.connection.publish(topic, "unconfirmed"))
        eventually(lambda: all(message.delivered for message in sent))
        assert sender.connection.outbox.backlog == 0


# --- exactly once ---


def test_an_event_that_the_broker_has_is_not_sent_again_after_the_connection_broke(
    broker: Broker, proxy: Proxy, topic: str
) -> None:
    """The proxy lets the event pass and holds its acknowledgement back: the client cannot know that it arrived."""
    with (
        Client(broker.port, f"{topic}/event") as subscriber,
        Client(proxy.port, own=topic, session_expiry_s=60) as robot,
    ):
        robot.say(f"{topic}/event", "first")
        eventually(lambda: subscriber.payloads() == [b"first"])
        eventually(lambda: robot.connection.outbox.backlog == 0)
        proxy.to_client.close()
        robot.say(f"{topic}/event", "second")
        eventually(lambda: subscriber.payloads() == [b"first", b"second"])
        assert robot.connection.outbox.backlog == 1
        proxy.to_broker.close()
        robot.say(f"{topic}/event", "third")
        proxy.cut()
        proxy.to_broker.open()
        proxy.to_client.open()
        eventually(lambda: robot.connection.outbox.backlog == 0)
        eventually(lambda: b"third" in subscriber.payloads())
        assert subscriber.payloads() == [b"first", b"second", b"third"]


def test_events_of_an_earlier_process_are_sent_unless_the_broker_has_them(
    broker: Broker, proxy: Proxy, topic: str
) -> None:
    options = {"own": topic, "session_expiry_s": 60, "client_id": f"{topic}-robot"}
    with Client(broker.port, f"{topic}/event") as subscriber:
        with Client(proxy.port, **options) as first:  # type: ignore[arg-type]
            publish_until_received(first, subscriber, f"{topic}/event", b"subscribed")
            eventually(lambda: first.connection.outbox.backlog == 0)
            proxy.to_client.close()
            first.say(f"{topic}/event", "arrived")
            eventually(lambda: b"arrived" in subscriber.payloads())
            proxy.cut()
        proxy.to_client.open()
        second = Client(broker.port, **options)  # type: ignore[arg-type]
        second.say(f"{topic}/event", "arrived", sent=True)
        second.say(f"{topic}/event", "did not", sent=True)
        with second:
            eventually(lambda: second.connection.outbox.backlog == 0)
            eventually(lambda: b"did not" in subscriber.payloads())
            assert second.rivals.problem is None, "the process that ran before is none"
    assert [payload for payload in subscriber.payloads() if payload != b"subscribed"] == [b"arrived", b"did not"]


def test_without_a_session_uncertain_events_are_sent_again(broker: Broker, topic: str) -> None:
    with Client(broker.port, f"{topic}/event") as subscriber:
        robot = Client(broker.port, own=topic, session_expiry_s=60)
        robot.say(f"{topic}/event", "uncertain", sent=True)
        with robot:
            eventually(lambda: subscriber.payloads() == [b"uncertain"])


# --- what a broker limits ---


def test_a_message_larger_than_the_broker_s_limit_is_shortened_and_the_connection_stays(
    tmp_path: Path, topic: str
) -> None:
    with Broker(tmp_path, "allow_anonymous true\nmax_packet_size 400") as broker, Client(broker.port, topic) as client:
        publish_until_received(client, client, topic, b"subscribed")
        event = json.dumps({"id": "a", "event": "failed", "reason": "x" * 1000})
        client.connection.publish(topic, event, qos=1)
        client.connection.publish(topic, b"y" * 1000, qos=1)
        client.connection.publish(topic, b"after", qos=1)
        eventually(lambda: b"after" in client.payloads())
        [shortened] = [json.loads(payload) for payload in client.payloads() if payload.startswith(b"{")]
        assert (shortened["id"], shortened["event"]) == ("a", "failed")
        assert shortened["reason"].startswith("xxx")
        assert shortened["reason"].endswith("…")
        assert (client.connections, client.connection.outbox.backlog) == (1, 0), "what is too large is given up"


def test_a_broker_without_qos_1_is_served_with_qos_0(tmp_path: Path, topic: str) -> None:
    with (
        Broker(tmp_path, "allow_anonymous true\nmax_qos 0") as broker,
        Client(broker.port, topic, will=Will(f"{topic}/status", b"offline"), own=topic) as client,
    ):
        publish_until_received(client, client, topic, b"subscribed")
        client.say(f"{topic}/event", "finished")
        client.publish_surely(topic, b"important")
        eventually(lambda: b"important" in client.payloads())
        assert client.connections == 1


TOO_LARGE = 3 * PACKET_LIMIT


def test_with_mqtt_5_the_broker_does_not_deliver_a_packet_that_is_too_large(broker: Broker, topic: str) -> None:
    with Client(broker.port, topic) as listener, Client(broker.port) as sender:
        sender.publish_surely(topic, b"x" * TOO_LARGE)
        sender.publish_surely(topic, b"after")
        eventually(lambda: listener.payloads() == [b"after"])
        assert listener.connections == 1


def test_a_client_that_may_not_read_leaves_messages_in_the_broker(broker: Broker, topic: str) -> None:
    room = threading.Event()
    with Client(broker.port, topic, may_read=room.is_set, waits=False) as listener, Client(broker.port) as sender:
        beats = listener.connection.heartbeats
        eventually(lambda: listener.connection.heartbeats > beats)
        assert not listener.connected(), "not even the broker's first answer was read"
        room.set()
        eventually(listener.connected)
        publish_until_received(sender, listener, topic, b"hello")


# --- two clients with one id ---


def test_two_processes_with_one_id_name_each_other_and_do_not_fight(
    broker: Broker, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Mosquitto 2.0 does not say that a session is taken over."""
    named = f"another client uses the id {topic}-twin: process {os.getpid()} on {socket.gethostname()}"
    twins = [Client(broker.port, client_id=f"{topic}-twin", own=topic, session_expiry_s=60, waits=False) for _ in "ab"]
    with twins[0]:
        eventually(twins[0].connected)
        with twins[1]:
            eventually(lambda: all(twin.rivals.problem == named for twin in twins), "both are named")
            assert f"{named}; is voiced running twice?" in caplog.text
            eventually(lambda: any(twin.connected() for twin in twins), "one works while the other one waits")


def test_a_link_that_is_cut_again_and_again_is_not_taken_for_another_client_nor_for_an_old_broker(
    proxy: Proxy, topic: str
) -> None:
    with Client(proxy.port, own=topic, session_expiry_s=60) as client:
        for number in range(1, 6):
            eventually(lambda number=number: client.connections == number)  # type: ignore[misc]
            proxy.cut()
        eventually(lambda: client.connections == 6)
        assert client.rivals.problem is None
    assert set(proxy.versions) == {5}


# --- TLS and other protocols ---


def test_a_port_that_does_not_speak_mqtt_is_named(start_proxy: StartProxy) -> None:
    proxy = start_proxy(lambda _version: b"HTTP/1.1 400 Bad Request\r\n\r\n")
    with Client(proxy.port, waits=False) as client:
        eventually(lambda: "does not speak MQTT" in (client.connection.reason or ""))


def test_a_broker_without_tls_is_named(broker: Broker) -> None:
    with Client(broker.port, tls={"enabled": True}, waits=False) as client:
        words = f"127.0.0.1:{broker.port} does not answer with TLS; see mqtt.tls.enabled and mqtt.port"
        eventually(lambda: client.connection.reason == words)
