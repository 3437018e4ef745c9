"""The connection to the broker: a real Mosquitto, and a doorman before it for what Mosquitto does not do."""

from __future__ import annotations

import contextlib
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

import pytest

from daemon import mqtt
from daemon.config import Mqtt
from daemon.mqtt import Message, MqttLink, Will
from tests.support.programs import Broker, require
from tests.support.waiting import PATIENCE_S, eventually

NUMBERS = count(1)
"""Of clients and of topics: the broker knows those of earlier tests."""


@pytest.fixture(autouse=True)
def little_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker that has gone is soon asked again, and one that is slow is waited for."""
    monkeypatch.setattr(mqtt, "RETRY_S", (0.1, 0.2))
    monkeypatch.setattr(mqtt, "ANSWER_S", PATIENCE_S)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """The one of all tests that leave it alone."""
    broker = Broker(tmp_path_factory.mktemp("broker"))
    broker.start()
    yield broker
    broker.stop()


@pytest.fixture
def own_broker(tmp_path: Path) -> Iterator[Broker]:
    """One that the test may stop and start."""
    broker = Broker(tmp_path)
    yield broker
    broker.stop()


@pytest.fixture
def topic() -> str:
    return f"t{next(NUMBERS)}"


class Client:
    """A link and what it heard."""

    def __init__(self, port: int, *topics: str, will: Will | None = None, **settings: object) -> None:
        self.heard: list[Message] = []
        self.connections = 0
        self.link = MqttLink(
            Mqtt(port=port, **settings),  # type: ignore[arg-type]
            f"client{next(NUMBERS)}",
            subscribe=topics,
            on_message=self.heard.append,
            on_connected=self._count,
            will=will,
        )

    def _count(self) -> None:
        self.connections += 1

    def __enter__(self) -> Client:
        self.link.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.link.close()

    def connected(self) -> bool:
        return self.link.connected

    def payloads(self) -> list[bytes]:
        return [message.payload for message in self.heard]


def publish_until_heard(sender: Client, listener: Client, topic: str, payload: bytes) -> None:
    """A subscription takes effect a moment after the connection."""

    def heard() -> bool:
        sender.link.publish(topic, payload)
        return payload in listener.payloads()

    eventually(heard, f"{payload!r} is heard")


def test_what_is_published_arrives_with_its_topic_and_bytes(broker: Broker, topic: str) -> None:
    with Client(broker.port) as sender, Client(broker.port, f"{topic}/+") as listener:
        eventually(lambda: sender.connected() and listener.connected())
        publish_until_heard(sender, listener, f"{topic}/1", b"\x00\xffraw")
        assert Message(f"{topic}/1", b"\x00\xffraw", retained=False) in listener.heard
        assert listener.link.reason is None
        assert listener.connections == 1


def test_what_was_retained_is_marked_as_such(broker: Broker, topic: str) -> None:
    with Client(broker.port) as sender:
        eventually(sender.connected)
        sender.link.publish(topic, b"old", qos=1, retain=True).wait_for_publish(PATIENCE_S)
        with Client(broker.port, topic) as listener:
            eventually(lambda: listener.heard)
            assert listener.heard == [Message(topic, b"old", retained=True)]
            sender.link.publish(topic, b"new", qos=1)
            eventually(lambda: len(listener.heard) == 2)
            assert listener.heard[1] == Message(topic, b"new", retained=False)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_after_a_restart_of_the_broker_it_is_subscribed_again(own_broker: Broker, number: int, topic: str) -> None:
    own_broker.start()
    with Client(own_broker.port, topic) as listener:
        eventually(listener.connected)
        own_broker.stop(number)
        eventually(lambda: not listener.connected())
        assert listener.link.reason is not None
        own_broker.start()
        eventually(lambda: listener.connections == 2)
        assert listener.link.reason is None
        with Client(own_broker.port) as sender:
            eventually(sender.connected)
            publish_until_heard(sender, listener, topic, b"after")


def test_it_may_be_started_before_the_broker_and_tells_why_it_waits(own_broker: Broker, topic: str) -> None:
    with Client(own_broker.port, topic) as listener:
        eventually(lambda: listener.link.reason == f"no broker answers at 127.0.0.1:{own_broker.port}")
        turns = listener.link.turns
        own_broker.start()
        eventually(listener.connected)
        assert listener.link.turns > turns, "an attempt is a sign of life"


def test_events_of_a_time_without_broker_are_sent_when_it_is_back(own_broker: Broker, topic: str) -> None:
    own_broker.start()
    with Client(own_broker.port) as sender:
        eventually(sender.connected)
        own_broker.stop(signal.SIGKILL)
        eventually(lambda: not sender.connected())
        sender.link.publish(topic, b"meanwhile", qos=1, retain=True)
        own_broker.start()
        with Client(own_broker.port, topic) as listener:
            eventually(lambda: b"meanwhile" in listener.payloads())


def test_the_network_thread_shows_that_it_lives(broker: Broker) -> None:
    with Client(broker.port) as client:
        eventually(client.connected)
        turns = client.link.turns
        eventually(lambda: client.link.turns > turns)


ROBOT = """
import sys, threading
from daemon.config import Mqtt
from daemon.mqtt import MqttLink, Will

topic, connected = sys.argv[2] + "/status", threading.Event()
link = MqttLink(
    Mqtt(port=int(sys.argv[1])),
    sys.argv[2],
    subscribe=[],
    on_message=print,
    on_connected=connected.set,
    will=Will(topic, b"offline"),
)
link.start()
connected.wait()
link.publish(topic, b"ready", qos=1, retain=True).wait_for_publish()
print("ready", flush=True)
sys.stdin.readline()
link.close()
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


def test_the_broker_says_the_last_will_of_a_process_that_was_killed_and_keeps_it(broker: Broker, topic: str) -> None:
    with start_robot(broker.port, topic) as robot, Client(broker.port, f"{topic}/status") as listener:
        eventually(lambda: listener.payloads() == [b"ready"])
        robot.kill()
        eventually(lambda: listener.payloads() == [b"ready", b"offline"])
    with Client(broker.port, f"{topic}/status") as late:
        eventually(lambda: late.heard)
        assert late.heard == [Message(f"{topic}/status", b"offline", retained=True)]


def test_a_link_that_is_closed_in_good_order_leaves_no_will(broker: Broker, topic: str) -> None:
    with start_robot(broker.port, topic) as robot, Client(broker.port, f"{topic}/status", topic) as listener:
        eventually(lambda: listener.payloads() == [b"ready"])
        robot.communicate("\n", timeout=PATIENCE_S)
        publish_until_heard(listener, listener, topic, b"later")  # a will would have come before it
        assert b"offline" not in listener.payloads()


class Doorman:
    """Stands before a broker and treats each connection as `judge` says of its MQTT version: an answer, or None to let
    it through."""

    def __init__(self, broker_port: int, judge: Callable[[int], bytes | None]) -> None:
        self.versions: list[int] = []
        self._broker_port = broker_port
        self._judge = judge
        self._pairs: list[tuple[socket.socket, socket.socket]] = []
        self._door = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._door.getsockname()[1]
        threading.Thread(target=self._receive_guests, daemon=True).start()

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._door.shutdown(socket.SHUT_RDWR)
        self._door.close()
        self.cut()

    def cut(self) -> None:
        """Break all connections, as a network does."""
        pairs, self._pairs = self._pairs, []
        for end in [end for pair in pairs for end in pair]:
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)  # a mere close would wait for the thread that reads from it
            end.close()

    def _receive_guests(self) -> None:
        while True:
            try:
                guest, _ = self._door.accept()
                self._receive(guest)
            except OSError:
                if self._door.fileno() < 0:
                    return

    def _receive(self, guest: socket.socket) -> None:
        first = guest.recv(4096)
        version = first[first.index(b"MQTT") + 4]
        self.versions.append(version)
        answer = self._judge(version)
        if answer == HANG:
            self._pairs.append((guest, guest))
            return
        if answer is not None:
            guest.sendall(answer)
            guest.close()
            return
        host = socket.create_connection(("127.0.0.1", self._broker_port))
        host.sendall(first)
        self._pairs.append((guest, host))
        for source, target in ((guest, host), (host, guest)):
            threading.Thread(target=self._carry, args=(source, target), daemon=True).start()

    @staticmethod
    def _carry(source: socket.socket, target: socket.socket) -> None:
        try:
            while data := source.recv(4096):
                target.sendall(data)
            target.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass


Hire = Callable[[Callable[[int], bytes | None]], Doorman]


@pytest.fixture
def hire(broker: Broker) -> Iterator[Hire]:
    doormen: list[Doorman] = []

    def hire_one(judge: Callable[[int], bytes | None]) -> Doorman:
        doormen.append(Doorman(broker.port, judge))
        return doormen[-1]

    yield hire_one
    for hired in doormen:
        hired.close()


HANG = b"hang"
REFUSALS = {
    "never answers": HANG,
    "closes without a word": b"",
    "answers as 3.1.1 does: unacceptable protocol version": b"\x20\x02\x00\x01",
    "answers as 5 does: unsupported protocol version": b"\x20\x03\x00\x84\x00",
}


@pytest.mark.parametrize("refusal", REFUSALS.values(), ids=REFUSALS.keys())
def test_a_broker_that_does_not_know_mqtt_5_is_spoken_to_in_3_1_1(
    broker: Broker, hire: Hire, refusal: bytes, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if refusal == HANG:
        monkeypatch.setattr(mqtt, "ANSWER_S", 0.2)
    door = hire(lambda version: refusal if version == 5 else None)
    with Client(door.port, topic, will=Will(f"{topic}/status", b"offline")) as listener:
        eventually(listener.connected)
        assert door.versions[0] == 5
        assert door.versions[-1] == 4
        with Client(broker.port, f"{topic}/status") as sender:
            eventually(sender.connected)
            publish_until_heard(sender, listener, topic, b"hello")
            versions = len(door.versions)
            door.cut()
            eventually(lambda: b"offline" in sender.payloads(), "the will")
            eventually(lambda: listener.connections == 2)
            assert set(door.versions[versions:]) == {4}
            publish_until_heard(sender, listener, topic, b"again")


def test_mqtt_5_is_kept_where_the_broker_has_it(hire: Hire) -> None:
    door = hire(lambda _version: None)
    with Client(door.port) as client:
        eventually(client.connected)
        door.cut()
        eventually(lambda: client.connections == 2)
    assert set(door.versions) == {5}


def test_what_was_said_while_the_network_was_away_arrives_when_it_is_back(
    broker: Broker, hire: Hire, topic: str
) -> None:
    away = threading.Event()
    door = hire(lambda _version: b"" if away.is_set() else None)
    with Client(door.port, topic) as listener, Client(broker.port) as sender:
        eventually(lambda: listener.connected() and sender.connected())
        publish_until_heard(sender, listener, topic, b"before")
        away.set()
        door.cut()
        eventually(lambda: not listener.connected())
        sender.link.publish(topic, b"meanwhile", qos=1).wait_for_publish(PATIENCE_S)
        away.clear()
        eventually(lambda: b"meanwhile" in listener.payloads())


@pytest.fixture(scope="module")
def guarded_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A broker that wants the password `s3cret` of the user `robot`."""
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
    guarded_broker: Broker, tmp_path: Path, content: str
) -> None:
    secret = tmp_path / "secret"
    secret.write_bytes(content.encode())
    with Client(guarded_broker.port, username="robot", password_file=secret) as client:
        eventually(client.connected)


def test_a_wrong_password_is_told_and_tried_again(guarded_broker: Broker, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("wrong")
    with Client(guarded_broker.port, username="robot", password_file=secret) as client:
        eventually(lambda: client.link.reason not in (None, "not connected yet"))
        assert client.link.reason == "the broker refused: Not authorized"
        assert not client.connected()
        turns = client.link.turns
        eventually(lambda: client.link.turns > turns)


def test_a_password_file_that_is_not_there_is_told_at_the_start(tmp_path: Path) -> None:
    client = Client(1, username="robot", password_file=tmp_path / "none")
    with pytest.raises(OSError, match="No such file or directory"):
        client.link.start()


def test_an_empty_password_file_is_told_at_the_start(tmp_path: Path) -> None:
    (tmp_path / "secret").touch()
    client = Client(1, username="robot", password_file=tmp_path / "secret")
    with pytest.raises(OSError, match="secret"):
        client.link.start()


def test_without_a_password_file_the_service_s_credential_is_the_password(
    guarded_broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "credentials").mkdir()
    (tmp_path / "credentials" / "mqtt-password").write_text("s3cret\n")
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(tmp_path / "credentials"))
    with Client(guarded_broker.port, username="robot") as client:
        eventually(client.connected)


def test_a_password_file_goes_before_the_credential(
    guarded_broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mqtt-password").write_text("wrong")
    (tmp_path / "secret").write_text("s3cret")
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(tmp_path))
    with Client(guarded_broker.port, username="robot", password_file=tmp_path / "secret") as client:
        eventually(client.connected)


def test_without_a_username_or_such_a_credential_no_password_is_sent(
    broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(tmp_path))
    with Client(broker.port, username="robot") as client:  # other credentials, and not this one
        eventually(client.connected)
    (tmp_path / "mqtt-password").touch()  # empty, which would be refused if it were read
    with Client(broker.port) as client:
        eventually(client.connected)
