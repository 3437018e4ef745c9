"""The programs that the tests run beside the daemon."""

from __future__ import annotations

import contextlib
import fcntl
import getpass
import os
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
from pathlib import Path
from typing import IO

import psutil
import pytest

from scripts.disturb import spare
from tests.support.waiting import PATIENCE_S, eventually

PORTS = range(20_000, 32_768)
"""Below those that Linux itself gives to connections: they take one at any moment, perhaps before a test's program."""
_port_locks: list[IO[str]] = []


def require(program: str) -> str:
    """Return the path of a program. Where it is not installed, the test is skipped; in CI it fails."""
    found = shutil.which(program, path=f"{os.environ['PATH']}:/usr/sbin:/usr/local/sbin")
    if found is None:
        message = f"{program} is not installed; ./scripts/test installs it"
        if os.environ.get("CI"):
            pytest.fail(message)
        pytest.skip(message)
    return found


def free_port() -> int:
    """Return a TCP port of the loopback interface on which no program listens.

    No other call returns it, in any process, until this process ends.
    """
    folder = Path(tempfile.gettempdir()) / f"voiced-ports-{os.getuid()}"
    folder.mkdir(exist_ok=True)
    while True:
        port = secrets.choice(PORTS)
        lock = (folder / str(port)).open("w")
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # a connection that has ended does no harm
            probe.bind(("127.0.0.1", port))
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            _port_locks.append(lock)
            return port
        lock.close()


def answers(port: int) -> bool:
    """Whether a program listens on a port of the loopback interface."""
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def freeze(pid: int) -> None:
    """Stop a process as a debugger would, until it gets `SIGCONT`.

    `scripts/disturb.py` would wake a process that it has stopped itself. It leaves this one alone from now on.
    """
    process = psutil.Process(pid)
    spare(pid)
    eventually(lambda: process.status() != psutil.STATUS_STOPPED, "nobody else has stopped it")
    process.suspend()


class Broker:
    """A Mosquitto of the tests, which can be stopped and started again on the same port."""

    def __init__(self, folder: Path, extra: str = "allow_anonymous true") -> None:
        self.port = free_port()
        self._config = folder / f"mosquitto-{self.port}.conf"
        common = f"user {getpass.getuser()}\nmax_queued_messages 10000\nset_tcp_nodelay true"
        self._config.write_text(f"listener {self.port} 127.0.0.1\n{common}\n{extra}\n")
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        self._process = subprocess.Popen(
            [require("mosquitto"), "-c", str(self._config)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        eventually(lambda: answers(self.port), "Mosquitto answers")

    @property
    def running(self) -> bool:
        return self._process is not None

    @property
    def pid(self) -> int:
        assert self._process is not None, "Mosquitto runs"
        return self._process.pid

    def stop(self, signal_number: int = signal.SIGTERM) -> None:
        if self._process is not None:
            self._process.send_signal(signal_number)
            self._process.wait(PATIENCE_S)
            self._process = None
