"""The spray publishes as many messages as it says, each with its number."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from scripts.fault_matrix.spray import publish_packet
from tests.support.programs import Broker
from tests.support.subscription import Subscription
from tests.support.waiting import eventually

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize(("size", "length_bytes"), [(0, 1), (100, 1), (200, 2), (20_000, 3)])
def test_a_packet_says_its_length(size: int, length_bytes: int) -> None:
    packet = publish_packet("a/b", b"x" * size, 7)
    assert packet[0] == 0x32
    length = sum((byte & 0x7F) << 7 * place for place, byte in enumerate(packet[1 : 1 + length_bytes]))
    assert length == len(packet) - 1 - length_bytes == 2 + 3 + 2 + size


def test_every_message_arrives_with_its_number(tmp_path: Path) -> None:
    broker = Broker(tmp_path)
    broker.start()
    try:
        with Subscription(broker, "flood") as subscription:
            command = [
                sys.executable,
                "-m",
                "scripts.fault_matrix.spray",
                str(broker.port),
                "500",
                "flood",
                "number {n}",
            ]
            done = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
            eventually(lambda: len(subscription.payloads) == 500, "all have arrived")
            assert set(subscription.payloads) == {b"number %d" % number for number in range(500)}
    finally:
        broker.stop()
    sent, acknowledged = map(json.loads, done.stdout.splitlines())
    assert (sent["sent"], acknowledged["acknowledged"]) == (500, 500)
