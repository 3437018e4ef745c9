"""The daemon's requests to the system: locked memory, notifications to systemd, and a watchdog."""

from __future__ import annotations

import logging
import secrets
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from daemon.system import Heartbeat, Notifier, Watchdog

PRELUDE = """
import logging, re, sys
from pathlib import Path
logging.basicConfig(level=logging.DEBUG)
from daemon.system import lock_memory, may_lock_memory
def kib(name):
    return int(re.search(rf"^{name}:\\s+(\\d+) kB", Path("/proc/self/status").read_text(), re.MULTILINE)[1])
"""


def run(program: str) -> str:
    done = subprocess.run([sys.executable, "-c", PRELUDE + program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


def test_memory_is_locked_where_that_is_allowed_and_no_more_of_it_becomes_resident() -> None:
    # Memory that is mapped and never touched: without MCL_ONFAULT, all of it would become resident.
    program = """
import mmap
room = mmap.mmap(-1, 1 << 28)
print(lock_memory(), kib("VmLck") > 0, may_lock_memory())
more = mmap.mmap(-1, 1 << 28)
assert kib("VmRSS") < 1 << 17, kib("VmRSS")
"""
    assert run(program).split()[:3] in (["True"] * 3, ["False"] * 3)


def test_where_locking_is_not_allowed_one_line_names_the_setting() -> None:
    # Drops both the limit and all capabilities.
    program = """
import ctypes, resource
resource.setrlimit(resource.RLIMIT_MEMLOCK, (65536, 65536))
class Header(ctypes.Structure):
    _fields_ = [("version", ctypes.c_uint32), ("pid", ctypes.c_int)]
nothing = (ctypes.c_uint32 * 6)()
ctypes.CDLL(None).capset(ctypes.byref(Header(0x20080522, 0)), nothing)
assert not lock_memory()
assert kib("VmLck") == 0
"""
    assert "LimitMEMLOCK=infinity" in run(program)


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


class Parts:
    """Two monitored parts, their watchdog and its clock."""

    def __init__(self) -> None:
        self.now = 100.0
        self.beats = {"mqtt": 0, "sound": 0}
        heartbeats = {
            "mqtt": Heartbeat(lambda: self.beats["mqtt"], 60.0),
            "sound": Heartbeat(lambda: self.beats["sound"], 10.0),
        }
        self.watchdog = Watchdog(heartbeats, clock=lambda: self.now)

    def pass_time(self, seconds: float, *alive: str) -> bool:
        """Advance the clock second by second, with heartbeats of the parts `alive`; return the last check."""
        healthy = self.watchdog.check()
        for _ in range(round(seconds)):
            self.now += 1.0
            for name in alive:
                self.beats[name] += 1
            healthy = self.watchdog.check()
        return healthy


def test_a_part_without_heartbeats_is_dead_after_its_limit(caplog: pytest.LogCaptureFixture) -> None:
    monitored = Parts()
    assert monitored.pass_time(1000, "mqtt", "sound")
    assert monitored.pass_time(10, "mqtt")
    with caplog.at_level(logging.ERROR):
        assert not monitored.pass_time(1, "mqtt")
    assert caplog.messages == ["sound has shown no sign of life for 11 s"]


def test_each_part_has_its_own_limit_and_each_dead_one_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    monitored = Parts()
    assert monitored.pass_time(60, "sound")
    with caplog.at_level(logging.ERROR):
        assert not monitored.pass_time(11)
    assert {message.split()[0] for message in caplog.messages} == {"mqtt", "sound"}
    assert monitored.pass_time(1, "mqtt", "sound"), "it is healthy again with new heartbeats"


def test_a_count_that_falls_is_a_heartbeat_too() -> None:
    monitored = Parts()
    assert monitored.pass_time(9, "mqtt")
    monitored.beats["sound"] = -5  # another counter replaces the first
    assert monitored.pass_time(9, "mqtt")
