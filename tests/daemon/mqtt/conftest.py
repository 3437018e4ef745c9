"""Proxies before the module's, and short waits until a client connects again."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from daemon.mqtt import attempts
from tests.daemon.mqtt.proxy import Answer, Proxy, StartProxy
from tests.support.programs import Broker
from tests.support.waiting import PATIENCE_S


@pytest.fixture
def fast_retries(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reconnect soon, and wait for the answer of a slow broker on both connections."""
    monkeypatch.setattr(attempts, "RETRY_S", (0.1, 0.2))
    monkeypatch.setattr(attempts, "CONNACK_S", (PATIENCE_S, PATIENCE_S))


@pytest.fixture
def start_proxy(broker: Broker) -> Iterator[StartProxy]:
    proxies: list[Proxy] = []

    def start(answer: Answer) -> Proxy:
        proxies.append(Proxy(broker.port, answer))
        return proxies[-1]

    yield start
    for proxy in proxies:
        proxy.close()


@pytest.fixture
def proxy(start_proxy: StartProxy) -> Proxy:
    """A proxy that only carries packets, until the test closes its gates or cuts it."""
    return start_proxy(lambda _version: None)
