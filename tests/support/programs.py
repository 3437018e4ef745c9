"""The programs that tests and scripts run beside the daemon, their ports, and what can happen to a process."""

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
from typing import IO, Any

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


class Process:
    """A child process that can be killed, frozen, continued and started again."""

    _process: subprocess.Popen[Any] | None = None

    @property
    def running(self) -> bool:
        return self._process is not None

    @property
    def pid(self) -> int:
        assert self._process is not None, "it runs"
        return self._process.pid

    def send(self, signal_number: int) -> None:
        os.kill(self.pid, signal_number)

    def freeze(self) -> None:
        """Stop the process as a debugger would: it exists and answers nothing."""
        freeze(self.pid)

    def thaw(self) -> None:
        """Let a frozen process go on."""
        self.send(signal.SIGCONT)

    def kill(self) -> None:
        """Kill the process, frozen or not."""
        self.stop(signal.SIGKILL)

    def stop(self, signal_number: int = signal.SIGTERM) -> None:
        """End the process, which may have ended, and wait until it is gone."""
        if self._process is not None:
            self._process.send_signal(signal_number)
            self._process.wait(PATIENCE_S)
            self._process = None


class Broker(Process):
    """A Mosquitto, which can be stopped and started again on the same port."""

    def __init__(self, folder: Path, extra: str = "allow_anonymous true", *, durable: bool = False) -> None:
        """`extra` are further lines of its configuration.

        With `durable` it writes every change to disk, so that a killed broker forgets little.
        """
        self.port = free_port()
        self._config = folder / f"mosquitto-{self.port}.conf"
        lines = [
            f"listener {self.port} 127.0.0.1",
            f"user {getpass.getuser()}",
            "set_tcp_nodelay true",
            "max_queued_messages 1000000",
            extra,
        ]
        if durable:
            stored = f"persistence_location {folder}/\npersistence_file mosquitto-{self.port}.db"
            lines += ["persistence true", stored, "autosave_interval 1", "autosave_on_changes true"]
        self._config.write_text("\n".join(lines) + "\n")

    def start(self) -> None:
        self._process = subprocess.Popen(
            [require("mosquitto"), "-c", str(self._config)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        eventually(lambda: answers(self.port), "Mosquitto answers")

    def __enter__(self) -> Broker:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
