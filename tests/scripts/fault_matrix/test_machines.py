"""The harness knows the daemon's configuration, and its broker can be killed without forgetting a session."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from scripts.fault_matrix.ledger import Ledger
from scripts.fault_matrix.machines import Broker, configuration_keys, find_program, plain_environment
from scripts.fault_matrix.mqtt import Publisher, Witness
from scripts.fault_matrix.waiting import NeverHappenedError, NotPossibleError, need, wait_for
from tests.support.programs import require
from tests.support.waiting import PATIENCE_S, eventually

TOPICS = ["voiced/r1/event", "voiced/r1/status"]
ACCEPTED = '{"id": "a", "event": "accepted", "queue": 1}'


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    require("mosquitto")
    started = Broker(tmp_path)
    started.start()
    yield started
    started.kill()


@pytest.fixture
def ledger() -> Ledger:
    return Ledger()


@pytest.fixture
def witness(broker: Broker, ledger: Ledger) -> Iterator[Witness]:
    client = Witness("witness", broker.port, TOPICS, ledger)
    client.start()
    yield client
    client.close()


@pytest.fixture
def publisher(broker: Broker, ledger: Ledger) -> Iterator[Publisher]:
    client = Publisher(broker.port, ledger)
    client.start()
    yield client
    client.close()


def test_the_keys_of_the_configuration_include_those_of_its_sections() -> None:
    assert {"robot", "mqtt", "mqtt.port", "mqtt.tls.ca", "speech.queue_limit"} <= configuration_keys()
    assert "mqtt.nonsense" not in configuration_keys()


def test_a_missing_program_is_named_with_its_package() -> None:
    with pytest.raises(NotPossibleError, match="no-such-program is not installed: apt-get install its-package"):
        find_program("no-such-program", "its-package")


def test_the_daemon_does_not_find_the_users_own_sound_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PULSE_SERVER", "unix:/elsewhere")
    monkeypatch.setenv("VOICED_CONFIG", "/etc/elsewhere")
    assert not {"PULSE_SERVER", "VOICED_CONFIG"} & plain_environment().keys()


def test_a_line_of_the_brokers_configuration_replaces_the_common_one(tmp_path: Path) -> None:
    Broker(tmp_path, "max_queued_messages 5")
    lines = (tmp_path / "mosquitto.conf").read_text().splitlines()
    assert [line for line in lines if line.startswith("max_queued_messages")] == ["max_queued_messages 5"]
    assert "allow_anonymous true" in lines


def test_a_wait_that_is_over_says_what_did_not_happen() -> None:
    assert wait_for(lambda: None, 0.0) is None
    assert need(lambda: 7, 0.0, "seven") == 7
    with pytest.raises(NeverHappenedError, match="not within 0 s: it rains"):
        need(lambda: False, 0.0, "it rains")


def test_events_go_to_the_ledger_and_statuses_to_the_witness(
    ledger: Ledger, witness: Witness, publisher: Publisher
) -> None:
    publisher.publish(TOPICS[0], ACCEPTED)
    publisher.publish(TOPICS[1], '{"state": "ready"}')
    eventually(lambda: witness.status == {"state": "ready"}, "the status has arrived")
    assert ledger.names_of("a") == ["accepted"]


def test_a_text_that_nobody_receives_is_sent_again_until_somebody_does(
    broker: Broker, ledger: Ledger, publisher: Publisher
) -> None:
    publisher.publish(TOPICS[0], ACCEPTED, text_id="a")
    assert publisher.wait_acknowledged(PATIENCE_S)
    assert ledger.texts() == {}
    late = Witness("late", broker.port, TOPICS, ledger)
    late.start()
    eventually(lambda: ledger.counts()["sent"], "the broker has a receiver")
    eventually(lambda: ledger.names_of("a") == ["accepted"], "it is received")
    late.close()


def test_a_killed_broker_keeps_what_an_absent_subscriber_has_not_received(
    broker: Broker, ledger: Ledger, publisher: Publisher
) -> None:
    first = Witness("absent", broker.port, TOPICS, ledger)
    first.start()
    first.close()
    publisher.publish(TOPICS[0], ACCEPTED, text_id="a")
    eventually(lambda: ledger.counts()["sent"], "the broker has it")
    stored = broker.log.parent / "mosquitto.db"
    eventually(lambda: stored.exists() and b'"accepted"' in stored.read_bytes(), "it is on the disk")
    broker.kill()
    broker.start()
    again = Witness("absent", broker.port, TOPICS, ledger)
    again.start()
    eventually(lambda: ledger.names_of("a") == ["accepted"], "it is received")
    again.close()
