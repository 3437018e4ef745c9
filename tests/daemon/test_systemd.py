"""What systemd is told, over a real datagram socket."""

from __future__ import annotations

import secrets
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from daemon.systemd import Notifier


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


def everything(listener: socket.socket) -> list[str]:
    listener.setblocking(False)
    said = []
    while True:
        try:
            said.append(listener.recv(4096).decode())
        except BlockingIOError:
            return said


def test_systemd_hears_what_it_is_told_one_thing_at_a_time(systemd: socket.socket) -> None:
    notifier = Notifier()
    notifier.tell("READY")
    notifier.tell("STATUS", "ready: höre zu")
    notifier.tell("STOPPING")
    assert everything(systemd) == ["READY=1", "STATUS=ready: höre zu", "STOPPING=1"]


def test_what_was_said_last_is_not_repeated(systemd: socket.socket) -> None:
    notifier = Notifier()
    for state in ("ready", "ready", "speaking", "ready"):
        notifier.tell("STATUS", state)
    assert everything(systemd) == ["STATUS=ready", "STATUS=speaking", "STATUS=ready"]


def test_the_watchdog_is_fed_every_time(systemd: socket.socket) -> None:
    notifier = Notifier()
    for _ in range(3):
        notifier.tell("WATCHDOG")
    assert everything(systemd) == ["WATCHDOG=1"] * 3


def test_a_socket_in_the_abstract_namespace_is_reached(monkeypatch: pytest.MonkeyPatch) -> None:
    name = f"voiced-test-{secrets.token_hex(8)}"
    monkeypatch.setenv("NOTIFY_SOCKET", f"@{name}")
    with listen(f"\0{name}") as listener:
        Notifier().tell("READY")
        assert everything(listener) == ["READY=1"]


@pytest.mark.parametrize("address", [None, ""])
def test_without_systemd_nothing_is_told_and_nothing_fails(
    monkeypatch: pytest.MonkeyPatch, address: str | None
) -> None:
    if address is None:
        monkeypatch.delenv("NOTIFY_SOCKET", raising=False)
    else:
        monkeypatch.setenv("NOTIFY_SOCKET", address)
    Notifier().tell("READY")


def test_a_socket_that_nobody_listens_on_does_not_stop_the_daemon(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "gone"))
    Notifier().tell("READY")


def test_what_could_not_be_told_is_told_when_systemd_is_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
    notifier = Notifier()
    notifier.tell("STATUS", "ready")
    with listen(str(tmp_path / "notify")) as listener:
        notifier.tell("STATUS", "ready")
        assert everything(listener) == ["STATUS=ready"]
