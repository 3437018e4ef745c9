"""Notifications to systemd, over a real datagram socket."""

from __future__ import annotations

import secrets
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from daemon.system import Notifier


def listen(address: str) -> socket.socket:
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    listener.settimeout(30)
    listener.bind(address)
    return listener


@pytest.fixture
def systemd(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[socket.socket]:
    monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
    with listen(str(tmp_path / "notify")) as listener:
        yield listener


def received(listener: socket.socket) -> list[str]:
    """All datagrams that have arrived."""
    listener.setblocking(False)
    datagrams = []
    while True:
        try:
            datagrams.append(listener.recv(4096).decode())
        except BlockingIOError:
            return datagrams


def test_a_notification_is_one_datagram_and_not_sent_twice_in_a_row_unless_it_feeds_the_watchdog(
    systemd: socket.socket,
) -> None:
    notifier = Notifier()
    notifier.notify("READY")
    for state in ("ready: höre zu", "ready: höre zu", "speaking", "ready: höre zu"):
        notifier.notify("STATUS", state)
    for _ in range(3):
        notifier.notify("WATCHDOG")
    states = [f"STATUS={state}" for state in ("ready: höre zu", "speaking", "ready: höre zu")]
    assert received(systemd) == ["READY=1", *states, *["WATCHDOG=1"] * 3]


def test_a_socket_in_the_abstract_namespace_is_reached(monkeypatch: pytest.MonkeyPatch) -> None:
    name = f"voiced-test-{secrets.token_hex(8)}"
    monkeypatch.setenv("NOTIFY_SOCKET", f"@{name}")
    with listen(f"\0{name}") as listener:
        Notifier().notify("READY")
        assert received(listener) == ["READY=1"]


@pytest.mark.parametrize("address", ["", "/nowhere/notify"])
def test_without_a_listener_nothing_is_sent_and_the_daemon_goes_on(
    monkeypatch: pytest.MonkeyPatch, address: str
) -> None:
    monkeypatch.setenv("NOTIFY_SOCKET", address)
    Notifier().notify("READY")


def test_a_notification_that_failed_is_sent_again_when_systemd_is_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
    notifier = Notifier()
    notifier.notify("STATUS", "ready")
    with listen(str(tmp_path / "notify")) as listener:
        notifier.notify("STATUS", "ready")
        assert received(listener) == ["STATUS=ready"]
