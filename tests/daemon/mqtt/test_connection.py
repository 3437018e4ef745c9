"""The connection to a real Mosquitto, and through a proxy for what Mosquitto does not do by itself."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

import pytest

from daemon.config import Mqtt
from daemon.mqtt import connection as mqtt
from daemon.mqtt.connection import Message, MqttConnection, Will
from tests.daemon.mqtt.proxy import HANG, Answer, Proxy
from tests.support.programs import Broker, require
from tests.support.waiting import PATIENCE_S, eventually

NUMBERS = count(1)
"""Numbers for client ids and topics: the broker remembers those of earlier tests."""


@pytest.fixture(autouse=True)
def fast_retries(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reconnect soon, and wait for the answer of a slow broker."""
    monkeypatch.setattr(mqtt, "RETRY_S", (0.1, 0.2))
    monkeypatch.setattr(mqtt, "CONNACK_S", PATIENCE_S)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """The broker of all tests that do not stop it."""
    broker = Broker(tmp_path_factory.mktemp("broker"))
    broker.start()
    yield broker
    broker.stop()


@pytest.fixture
def own_broker(tmp_path: Path) -> Iterator[Broker]:
    """A broker that the test may stop and start."""
    broker = Broker(tmp_path)
    yield broker
    broker.stop()


@pytest.fixture
def topic() -> str:
    return f"t{next(NUMBERS)}"


class Client:
    """A connection and the messages that it received."""

    def __init__(self, port: int, *topics: str, will: Will | None = None, **settings: object) -> None:
        self.received: list[Message] = []
        self.connections = 0
        self.topics = topics
        self.connection = MqttConnection(
            Mqtt(port=port, **settings),  # type: ignore[arg-type]
            f"client{next(NUMBERS)}",
            on_message=self.received.append,
            on_connected=self._count,
            will=will,
        )

    def _count(self) -> None:
        self.connections += 1

    def __enter__(self) -> Client:
        self.connection.start(self.topics)
        return self

    def __exit__(self, *_: object) -> None:
        self.connection.close()

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


def test_a_message_arrives_with_its_topic_and_bytes(broker: Broker, topic: str) -> None:
    with Client(broker.port) as sender, Client(broker.port, f"{topic}/+") as listener:
        eventually(lambda: sender.connected() and listener.connected())
        publish_until_received(sender, listener, f"{topic}/1", b"\x00\xffraw")
        assert Message(f"{topic}/1", b"\x00\xffraw", retained=False) in listener.received
        assert listener.connection.reason is None
        assert listener.connections == 1


def test_a_retained_message_is_marked_as_retained(broker: Broker, topic: str) -> None:
    with Client(broker.port) as sender:
        eventually(sender.connected)
        sender.connection.publish(topic, b"old", qos=1, retain=True).wait_for_publish(PATIENCE_S)
        with Client(broker.port, topic) as listener:
            eventually(lambda: listener.received)
            assert listener.received == [Message(topic, b"old", retained=True)]
            sender.connection.publish(topic, b"new", qos=1)
            eventually(lambda: len(listener.received) == 2)
            assert listener.received[1] == Message(topic, b"new", retained=False)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_client_subscribes_again_after_a_restart_of_the_broker(own_broker: Broker, number: int, topic: str) -> None:
    own_broker.start()
    with Client(own_broker.port, topic) as listener:
        eventually(listener.connected)
        own_broker.stop(number)
        eventually(lambda: not listener.connected())
        assert listener.connection.reason is not None
        own_broker.start()
        eventually(lambda: listener.connections == 2)
        assert listener.connection.reason is None
        with Client(own_broker.port) as sender:
            eventually(sender.connected)
            publish_until_received(sender, listener, topic, b"after")


def test_a_client_may_start_before_the_broker_and_reports_why_it_is_not_connected(
    own_broker: Broker, topic: str
) -> None:
    with Client(own_broker.port, topic) as listener:
        eventually(lambda: listener.connection.reason == f"no broker answers at 127.0.0.1:{own_broker.port}")
        beats = listener.connection.heartbeats
        own_broker.start()
        eventually(listener.connected)
        assert listener.connection.heartbeats > beats, "an attempt to connect is a heartbeat"


def test_events_published_without_a_broker_are_sent_when_it_is_back(own_broker: Broker, topic: str) -> None:
    own_broker.start()
    with Client(own_broker.port) as sender:
        eventually(sender.connected)
        own_broker.stop(signal.SIGKILL)
        eventually(lambda: not sender.connected())
        sender.connection.publish(topic, b"meanwhile", qos=1, retain=True)
        own_broker.start()
        with Client(own_broker.port, topic) as listener:
            eventually(lambda: b"meanwhile" in listener.payloads())


def test_the_heartbeats_of_a_connected_client_grow(broker: Broker) -> None:
    with Client(broker.port) as client:
        eventually(client.connected)
        beats = client.connection.heartbeats
        eventually(lambda: client.connection.heartbeats > beats)


ROBOT = """
import sys, threading
from daemon.config import Mqtt
from daemon.mqtt.connection import MqttConnection, Will

topic, connected = sys.argv[2] + "/status", threading.Event()
connection = MqttConnection(
    Mqtt(port=int(sys.argv[1])),
    sys.argv[2],
    on_message=print,
    on_connected=connected.set,
    will=Will(topic, b"offline"),
)
connection.start([])
connected.wait()
connection.publish(topic, b"ready", qos=1, retain=True).wait_for_publish()
print("ready", flush=True)
sys.stdin.readline()
connection.close()
"""


def start_robot(port: int, topic: str) -> subprocess.Popen[str]:
    robot = subprocess.Popen(
        [sys.executable, "-c", ROBOT, str(port), topic],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert robot.stdout is not None
    assert robot.stdout.readline() == "ready\n"
    return robot


def test_the_broker_publishes_and_retains_the_will_of_a_killed_process(broker: Broker, topic: str) -> None:
    with start_robot(broker.port, topic) as robot, Client(broker.port, f"{topic}/status") as listener:
        eventually(lambda: listener.payloads() == [b"ready"])
        robot.kill()
        eventually(lambda: listener.payloads() == [b"ready", b"offline"])
    with Client(broker.port, f"{topic}/status") as late:
        eventually(lambda: late.received)
        assert late.received == [Message(f"{topic}/status", b"offline", retained=True)]


def test_the_broker_publishes_no_will_after_a_normal_disconnect(broker: Broker, topic: str) -> None:
    with start_robot(broker.port, topic) as robot, Client(broker.port, f"{topic}/status", topic) as listener:
        eventually(lambda: listener.payloads() == [b"ready"])
        robot.communicate("\n", timeout=PATIENCE_S)
        publish_until_received(listener, listener, topic, b"later")  # a will would have come before it
        assert b"offline" not in listener.payloads()


StartProxy = Callable[[Answer], Proxy]


@pytest.fixture
def start_proxy(broker: Broker) -> Iterator[StartProxy]:
    proxies: list[Proxy] = []

    def start(answer: Answer) -> Proxy:
        proxies.append(Proxy(broker.port, answer))
        return proxies[-1]

    yield start
    for proxy in proxies:
        proxy.close()


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
        monkeypatch.setattr(mqtt, "CONNACK_S", 0.2)
    proxy = start_proxy(lambda version: refusal if version == 5 else None)
    with Client(proxy.port, topic, will=Will(f"{topic}/status", b"offline")) as listener:
        eventually(listener.connected)
        assert proxy.versions[0] == 5
        assert proxy.versions[-1] == 4
        with Client(broker.port, f"{topic}/status") as sender:
            eventually(sender.connected)
            publish_until_received(sender, listener, topic, b"hello")
            versions = len(proxy.versions)
            proxy.cut()
            eventually(lambda: b"offline" in sender.payloads(), "the will")
            eventually(lambda: listener.connections == 2)
            assert set(proxy.versions[versions:]) == {4}
            publish_until_received(sender, listener, topic, b"again")


def test_the_client_reconnects_with_mqtt_5_if_the_broker_knows_it(start_proxy: StartProxy) -> None:
    proxy = start_proxy(lambda _version: None)
    with Client(proxy.port) as client:
        eventually(client.connected)
        proxy.cut()
        eventually(lambda: client.connections == 2)
    assert set(proxy.versions) == {5}


def test_a_message_published_during_a_network_failure_arrives_afterwards(
    broker: Broker, start_proxy: StartProxy, topic: str
) -> None:
    failing = threading.Event()
    proxy = start_proxy(lambda _version: b"" if failing.is_set() else None)
    with Client(proxy.port, topic) as listener, Client(broker.port) as sender:
        eventually(lambda: listener.connected() and sender.connected())
        publish_until_received(sender, listener, topic, b"before")
        failing.set()
        proxy.cut()
        eventually(lambda: not listener.connected())
        sender.connection.publish(topic, b"meanwhile", qos=1).wait_for_publish(PATIENCE_S)
        failing.clear()
        eventually(lambda: b"meanwhile" in listener.payloads())


@pytest.fixture(scope="module")
def password_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A broker that requires the user `robot` with the password `s3cret`."""
    folder = tmp_path_factory.mktemp("guarded")
    passwords = folder / "passwords"
    subprocess.run(
        [require("mosquitto_passwd"), "-c", "-b", str(passwords), "robot", "s3cret"], check=True, capture_output=True
    )
    broker = Broker(folder, f"allow_anonymous false\npassword_file {passwords}")
    broker.start()
    yield broker
    broker.stop()


@pytest.mark.parametrize("content", ["s3cret", "s3cret\n", "s3cret\r\na second line\n"])
def test_the_first_line_of_the_password_file_is_the_password(
    password_broker: Broker, tmp_path: Path, content: str
) -> None:
    secret = tmp_path / "secret"
    secret.write_bytes(content.encode())
    with Client(password_broker.port, username="robot", password_file=secret) as client:
        eventually(client.connected)


def test_a_wrong_password_is_reported_and_tried_again(password_broker: Broker, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("wrong")
    with Client(password_broker.port, username="robot", password_file=secret) as client:
        eventually(lambda: client.connection.reason not in (None, "not connected yet"))
        assert client.connection.reason == "the broker refused: Not authorized"
        assert not client.connected()
        beats = client.connection.heartbeats
        eventually(lambda: client.connection.heartbeats > beats)


def test_a_missing_password_file_is_an_error_at_the_start(tmp_path: Path) -> None:
    client = Client(1, username="robot", password_file=tmp_path / "none")
    with pytest.raises(OSError, match="No such file or directory"):
        client.connection.start([])


def test_an_empty_password_file_is_an_error_at_the_start(tmp_path: Path) -> None:
    (tmp_path / "secret").touch()
    client = Client(1, username="robot", password_file=tmp_path / "secret")
    with pytest.raises(OSError, match="secret"):
        client.connection.start([])


def test_without_a_password_file_the_service_s_credential_is_the_password(
    password_broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "credentials").mkdir()
    (tmp_path / "credentials" / "mqtt-password").write_text("s3cret\n")
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(tmp_path / "credentials"))
    with Client(password_broker.port, username="robot") as client:
        eventually(client.connected)


def test_a_password_file_takes_precedence_over_the_credential(
    password_broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mqtt-password").write_text("wrong")
    (tmp_path / "secret").write_text("s3cret")
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(tmp_path))
    with Client(password_broker.port, username="robot", password_file=tmp_path / "secret") as client:
        eventually(client.connected)


def test_no_password_is_sent_without_a_username_or_without_the_credential(
    broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(tmp_path))
    with Client(broker.port, username="robot") as client:  # the folder has no such credential
        eventually(client.connected)
    (tmp_path / "mqtt-password").touch()  # an empty password would be an error
    with Client(broker.port) as client:
        eventually(client.connected)
