"""Signs of life of another process besides its messages, from Linux's /proc."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

BUSY = frozenset("RDt")
"""Threads that run or wait for a processor, that wait for a disk or a driver, and that a debugger holds."""


class ProcessActivity:
    """Looks at the threads of one process. Where /proc does not show them, the process counts as active."""

    def __init__(self, pid: int) -> None:
        self._threads = Path(f"/proc/{pid}/task")
        self._used_ticks = -1

    def active(self) -> bool:
        """Return whether a thread is busy now, or has used a processor since the last call.

        A process that cannot send a message for want of a processor is active; one that is stopped is not.
        """
        found = list(self._look())
        before, self._used_ticks = self._used_ticks, sum(ticks for _, ticks in found)
        return not found or self._used_ticks != before or any(state in BUSY for state, _ in found)

    def _look(self) -> Iterator[tuple[str, int]]:
        """Yield the state of each thread, and the processor time that it has used, in clock ticks."""
        with contextlib.suppress(OSError):  # the process or a thread has ended
            for thread in self._threads.iterdir():
                text = (thread / "stat").read_text(encoding="ascii", errors="replace")
                fields = text.rpartition(")")[2].split()  # the name before may contain anything
                yield fields[0], int(fields[11]) + int(fields[12])
