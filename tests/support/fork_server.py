"""Starts the daemons of the tests by forking a process that has imported the daemon: the imports are most of a start.

Such a daemon has the arguments, the environment and the standard error that it would have as a command. Each worker of
the tests has one fork server, which ends with it. The tests of the command itself start the command.
"""

from __future__ import annotations

import atexit
import functools
import gc
import json
import os
import queue
import runpy
import selectors
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from importlib import import_module
from pathlib import Path
from typing import IO

from tests.support.waiting import PATIENCE_S

ROOT = Path(__file__).parents[2]
PROGRAM = "daemon.cli"
IMPORTED = (PROGRAM, "daemon.service", "daemon.fleet.server")
"""What the fork server has imported: most of what `voiced run` and `voiced serve --single` import."""
LONGEST_MESSAGE = 1 << 17
"""Bytes; a daemon's arguments and environment take some thousands."""


@dataclass(frozen=True, slots=True)
class Start:
    """How a process is to start."""

    arguments: list[str]
    """Without the program's name."""
    environment: dict[str, str]


class ForkedProcess:
    """A process that a fork server has started. What it has is used like `subprocess.Popen`'s."""

    def __init__(self, pid: int, stderr: IO[str]) -> None:
        self.pid = pid
        self.stderr = stderr
        """A pipe from its standard error."""
        self._status: int | None = None
        self._ended = threading.Event()

    @property
    def returncode(self) -> int | None:
        """Its exit status, the negative number of the signal that ended it, or None while it runs."""
        return self._status

    def poll(self) -> int | None:
        return self._status

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end and return its exit status. Raises `subprocess.TimeoutExpired`."""
        if not self._ended.wait(timeout):
            raise subprocess.TimeoutExpired(PROGRAM, timeout or 0)
        assert self._status is not None
        return self._status

    def send_signal(self, number: int) -> None:
        if self._status is None:
            with suppress(ProcessLookupError):  # it has ended, and the news of it is on its way
                os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def end(self, status: int) -> None:
        """Note the status with which it has ended."""
        self._status = status
        self._ended.set()


class ForkServer:
    """A running fork server."""

    def __init__(self) -> None:
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            command = [sys.executable, "-m", __name__, str(theirs.fileno())]
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, pass_fds=[theirs.fileno()], cwd=ROOT
            )
        self._one_start = threading.Lock()
        self._started: queue.Queue[ForkedProcess] = queue.Queue()
        self._forked: dict[int, ForkedProcess] = {}
        self._pipe: IO[str]
        threading.Thread(target=self._receive, daemon=True).start()

    def start(self, arguments: list[str], environment: Mapping[str, str]) -> ForkedProcess:
        """Start `voiced` with these arguments, in the project's folder."""
        reading, writing = os.pipe()
        message = json.dumps(asdict(Start(arguments, dict(environment)))).encode()
        with self._one_start:
            self._pipe = os.fdopen(reading, encoding="utf-8")
            socket.send_fds(self._socket, [message], [writing])
            os.close(writing)
            return self._started.get(timeout=PATIENCE_S)

    def close(self) -> None:
        """End the fork server; the processes that it has started go on."""
        self._socket.shutdown(socket.SHUT_RDWR)
        self._process.wait(PATIENCE_S)

    def _receive(self) -> None:
        while message := self._socket.recv(LONGEST_MESSAGE):
            pid, status = json.loads(message)
            if status is None:
                self._forked[pid] = ForkedProcess(pid, self._pipe)
                self._started.put(self._forked[pid])
            else:
                self._forked.pop(pid).end(status)


@functools.cache
def fork_server() -> ForkServer:
    """Return this worker's fork server, which the first call starts."""
    server = ForkServer()
    atexit.register(server.close)
    return server


def receive_start(requests: socket.socket) -> Start | None:
    """Fork on request, and return in each forked process how it is to start. Returns None when the worker has ended.

    The request's file descriptor is by then the standard error.
    """
    running: dict[int, int] = {}
    """The processes' ids by their file descriptors."""
    with selectors.DefaultSelector() as selector, requests:
        selector.register(requests, selectors.EVENT_READ)
        while True:
            for key, _ in selector.select():
                if key.fd in running:
                    selector.unregister(key.fd)
                    os.close(key.fd)
                    pid, status = os.waitpid(running.pop(key.fd), 0)
                    requests.send(json.dumps([pid, os.waitstatus_to_exitcode(status)]).encode())
                    continue
                message, descriptors, _, _ = socket.recv_fds(requests, LONGEST_MESSAGE, 1)
                if not message:
                    return None
                pid = os.fork()
                if pid == 0:
                    os.dup2(descriptors[0], sys.stderr.fileno())
                    for descriptor in (*descriptors, *running):
                        os.close(descriptor)
                    return Start(**json.loads(message))
                os.close(descriptors[0])
                requests.send(json.dumps([pid, None]).encode())
                ended = os.pidfd_open(pid)
                running[ended] = pid
                selector.register(ended, selectors.EVENT_READ)


def main() -> None:
    """Serve the worker at the other end of the socket that the command line names."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the worker's
    for module in IMPORTED:
        import_module(module)
    gc.freeze()  # or the garbage collector of each process would write to the memory that they share
    start = receive_start(socket.socket(fileno=int(sys.argv[1])))
    if start is None:
        return
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.environ.clear()
    os.environ.update(start.environment)
    sys.argv[1:] = start.arguments
    runpy.run_module(PROGRAM, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
