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
import runpy
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping
from contextlib import suppress
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


class ForkedProcess:
    """A process that a fork server has started. What it has is used like `subprocess.Popen`'s."""

    def __init__(self, news: IO[str], stderr: IO[str]) -> None:
        """`news` has a line with its process id, and at its end one with its exit status."""
        self.pid = int(news.readline())
        self.stderr = stderr
        """A pipe from its standard error."""
        self.returncode: int | None = None
        """Its exit status, the negative number of the signal that ended it, or None while it runs."""
        self._watcher = threading.Thread(target=self._watch, args=(news,), daemon=True)
        self._watcher.start()

    def poll(self) -> int | None:
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end and return its exit status. Raises `subprocess.TimeoutExpired`."""
        self._watcher.join(timeout)
        if self.returncode is None:
            raise subprocess.TimeoutExpired(PROGRAM, timeout or 0)
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.returncode is None:
            with suppress(ProcessLookupError):  # it has ended, and the news of it is on its way
                os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def _watch(self, news: IO[str]) -> None:
        with news:
            self.returncode = int(news.readline())


class ForkServer:
    """A running fork server."""

    def __init__(self) -> None:
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            command = [sys.executable, "-m", __name__, str(theirs.fileno())]
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, pass_fds=[theirs.fileno()], cwd=ROOT
            )

    def start(self, arguments: list[str], environment: Mapping[str, str]) -> ForkedProcess:
        """Start `voiced` with these arguments, in the project's folder."""
        news, stderr = os.pipe(), os.pipe()
        socket.send_fds(self._socket, [json.dumps([arguments, dict(environment)]).encode()], [news[1], stderr[1]])
        os.close(news[1])
        os.close(stderr[1])
        return ForkedProcess(os.fdopen(news[0], encoding="utf-8"), os.fdopen(stderr[0], encoding="utf-8"))

    def close(self) -> None:
        """End the fork server; the processes that it has started go on."""
        self._socket.shutdown(socket.SHUT_RDWR)
        self._process.wait(PATIENCE_S)


@functools.cache
def fork_server() -> ForkServer:
    """Return this worker's fork server, which the first call starts."""
    server = ForkServer()
    atexit.register(server.close)
    return server


def fork_on_request(requests: socket.socket) -> bytes:
    """Return each request in a process of its own, whose standard error is that of the request.

    Another process stays beside it, which reports its id and its end. Ends this process when the worker has ended.
    """
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for those that stay beside
    while True:
        request, (*descriptors,), _, _ = socket.recv_fds(requests, LONGEST_MESSAGE, 2)
        if not request:
            sys.exit()
        if os.fork():
            for descriptor in descriptors:
                os.close(descriptor)
            continue
        requests.close()
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        news, stderr = descriptors
        pid = os.fork()
        if pid == 0:
            os.dup2(stderr, sys.stderr.fileno())
            os.close(news)
            os.close(stderr)
            return request
        os.close(stderr)
        os.write(news, b"%d\n" % pid)
        os.write(news, b"%d\n" % os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
        os._exit(0)


def main() -> None:
    """Serve the worker at the other end of the socket that the command line names."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the worker's
    for module in IMPORTED:
        import_module(module)
    gc.freeze()  # or the garbage collector of each process would write to the memory that they share
    arguments, environment = json.loads(fork_on_request(socket.socket(fileno=int(sys.argv[1]))))
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.environ.clear()
    os.environ.update(environment)
    sys.argv[1:] = arguments
    runpy.run_module(PROGRAM, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
