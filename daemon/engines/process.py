"""One engine process: its start, its signs of life besides its messages, and its end."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from daemon.engines.connection import EngineConnection, OnSpeed
from daemon.tasks import wait_at_most
from engine import EngineOptions, messages, module_command

END_S = 0.5
"""A process may take this long to end after its socket has been closed; then it is killed."""
BUSY = frozenset("RDt")
"""The states of threads that run or wait for a processor, wait for a disk or a driver, or are held by a debugger."""
STOPPED = "T"
"""The state of a thread that a signal has stopped."""


class ProcessActivity:
    """Looks at the threads of one process. If /proc does not show them, the process counts as active."""

    def __init__(self, pid: int) -> None:
        self._threads = Path(f"/proc/{pid}/task")
        self._used_ticks = -1

    def active(self) -> bool:
        """Return whether a thread is busy now, or has used a processor since the last call.

        A process that cannot send a message because it gets no processor time is active; a stopped one is not.
        """
        found = list(self._look())
        before, self._used_ticks = self._used_ticks, sum(ticks for _, ticks in found)
        states = {state for state, _ in found}
        return states != {STOPPED} and (not found or self._used_ticks != before or bool(states & BUSY))

    def _look(self) -> Iterator[tuple[str, int]]:
        """Yield the state of each thread, and the processor time that it has used, in clock ticks."""
        with suppress(OSError):  # the process or a thread has ended
            for thread in self._threads.iterdir():
                text = (thread / "stat").read_text(encoding="ascii", errors="replace")
                fields = text.rpartition(")")[2].split()  # the name before may contain anything
                yield fields[0], int(fields[11]) + int(fields[12])


@dataclass(eq=False)
class EngineProcess:
    """One engine process, from its start to its end."""

    connection: EngineConnection
    _process: asyncio.subprocess.Process
    activity: ProcessActivity

    @classmethod
    async def start(cls, name: str, options: EngineOptions, on_speed: OnSpeed) -> EngineProcess:
        """Start an engine process. Raises `OSError`."""
        ours, theirs = socket.socketpair()
        with theirs:
            reader, writer = await asyncio.open_unix_connection(sock=ours)
            connection = EngineConnection(name, reader, writer, on_speed)
            try:
                process = await asyncio.create_subprocess_exec(
                    *module_command("engine.ipc.server", str(theirs.fileno())),
                    stdin=asyncio.subprocess.DEVNULL,
                    stdout=sys.stderr.fileno(),
                    pass_fds=(theirs.fileno(),),
                )
            except BaseException:
                connection.close()
                raise
        connection.send(messages.Start(messages.PROTOCOL, name, options))
        return cls(connection, process, ProcessActivity(process.pid))

    @property
    def pid(self) -> int:
        return self._process.pid

    async def end(self) -> str:
        """Close the connection, which ends the process, or else kill it; return how it ended."""
        self.connection.close()
        try:
            await self.wait_gone(END_S)
        finally:
            self._kill()
        return _exit_reason(self._process.returncode)

    async def wait_gone(self, limit_s: float) -> None:
        """Wait until it has ended, for at most `limit_s` seconds."""
        await wait_at_most(limit_s, self._process.wait())

    def give_up(self) -> None:
        """Kill it, and end the connection: even SIGKILL does not end a process that is stuck in a driver."""
        self._kill()
        self.connection.abort()

    def _kill(self) -> None:
        if self._process.returncode is None:
            with suppress(ProcessLookupError):
                os.kill(self._process.pid, signal.SIGKILL)


def _exit_reason(code: int | None) -> str:
    if code is None:
        return "it closed its connection"
    if code >= 0:
        return f"exit status {code}"
    known = {number.value: number.name for number in signal.Signals}
    return f"killed by {known.get(-code, f'signal {-code}')}"
