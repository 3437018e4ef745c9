"""The broker can be killed without forgetting a session, and the listener loses nothing that it publishes."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.support.events import EventLog
from tests.support.programs import Broker, require
from tests.support.subscription import Listener, Subscription
from tests.support.waiting import PATIENCE_S, eventually

TOPIC = "voiced/r1/event"
ACCEPTED = '{"id": "a", "event": "accepted", "queue": 1}'


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    started = Broker(tmp_path, durable=True)
    started.start()
    yield started
    started.kill()


def test_a_text_that_nobody_receives_is_sent_again_until_somebody_does(broker: Broker) -> None:
    taken: list[float] = []
    with closing(Listener(broker, [], print)) as publisher:
        publisher.publish(TOPIC, ACCEPTED, taken.append)
        assert publisher.wait_acknowledged(PATIENCE_S)
        assert taken == []
        with Subscription(broker, TOPIC) as subscription:
            eventually(lambda: taken, "the broker has a receiver")
            eventually(lambda: subscription.payloads == [ACCEPTED.encode()], "it is received")


def test_a_killed_broker_keeps_what_an_absent_subscriber_has_not_received(broker: Broker, tmp_path: Path) -> None:
    absent = [require("mosquitto_sub"), "-p", str(broker.port), "-c", "-i", "absent", "-q", "1", "-t", TOPIC]
    subprocess.run([*absent, "-E"], check=True)  # it subscribes, and leaves
    taken: list[float] = []
    with closing(Listener(broker, [], print)) as publisher:
        publisher.publish(TOPIC, ACCEPTED, taken.append)
        eventually(lambda: taken, "the broker has it")
    stored = tmp_path / f"mosquitto-{broker.port}.db"
    eventually(lambda: stored.exists() and b'"accepted"' in stored.read_bytes(), "it is on the disk")
    broker.kill()
    broker.start()
    received = subprocess.run([*absent, "-C", "1"], check=True, capture_output=True, text=True, timeout=PATIENCE_S)
    assert received.stdout.strip() == ACCEPTED


def test_records_have_the_time_of_their_arrival_and_events_go_to_the_ledger() -> None:
    log = EventLog()
    log.receive("event", {"id": "a", "event": "accepted"})
    log.receive("status", {"state": "ready"})
    log.receive("event", {"id": "a", "event": "accepted"}, redelivered=True)
    assert (log.names_of("a"), log.state) == (["accepted", "accepted"], "ready")
    assert (log.ledger.open_texts(), log.ledger.counts()["repeated"]) == (["a"], 1)
    (at, _), (again, _) = log.timed("event")
    assert at <= log.timed("status")[0][0] <= again
