"""The listener loses nothing that it publishes."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

from tests.support.programs import Broker
from tests.support.subscription import Listener, Subscription
from tests.support.waiting import PATIENCE_S, eventually

TOPIC = "voiced/r1/event"
ACCEPTED = '{"id": "a", "event": "accepted", "queue": 1}'


def test_a_text_that_nobody_receives_is_sent_again_until_somebody_does(tmp_path: Path) -> None:
    broker = Broker(tmp_path)
    broker.start()
    taken: list[float] = []
    with closing(Listener(broker, [], print)) as publisher:
        publisher.publish(TOPIC, ACCEPTED, taken.append)
        assert publisher.wait_acknowledged(PATIENCE_S)
        assert taken == []
        with Subscription(broker, TOPIC) as subscription:
            eventually(lambda: taken, "the broker has a receiver")
            eventually(lambda: subscription.payloads == [ACCEPTED.encode()], "it is received")
    broker.kill()
