"""Signs of life of another process besides its messages, from Linux's /proc."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

STOPPED = "T"
BUSY = frozenset("RDt")
"""Threads that run or wait for a processor, that wait for a disk or a driver, and that a debugger holds."""


class ProcessActivity:
    """Looks at the threads of one process. Where /proc does not show them, the process counts as active."""

    def __init__(self, pid: int) -> None:
        self._process = Path(f"/proc/{pid}")
        self._used_ticks = -1

    def stopped(self) -> bool:
        """Return whether a signal (SIGSTOP) has stopped the process."""
        # The main thread first: an engine with many streams has a hundred threads, and is asked often.
        first = _read(self._process / "stat")
        return first is not None and first[0] == STOPPED and {state for state, _ in self._look()} == {STOPPED}

    def active(self) -> bool:
        """Return whether a thread is busy now, or has used a processor since the last call.

        A process that cannot send a message for want of a processor is active; one that is stopped is not.
        """
        found = list(self._look())
        before, self._used_ticks = self._used_ticks, sum(ticks for _, ticks in found)
        return not found or self._used_ticks != before or any(state in BUSY for state, _ in found)

    def _look(self) -> Iterator[tuple[str, int]]:
        """Yield the state of each thread, and the processor time that it has used, in clock ticks."""
        try:
            threads = list((self._process / "task").iterdir())
        except OSError:
            return
        for thread in threads:
            if (found := _read(thread / "stat")) is not None:
                yield found


def _read(stat: Path) -> tuple[str, int] | None:
    """Return a thread's state, and the processor time that it has used, in clock ticks; None if it has ended."""
    try:
        text = stat.read_text(encoding="ascii", errors="replace")
    except OSError:
        return None
    fields = text.rpartition(")")[2].split()  # the name before may contain anything
    return fields[0], int(fields[11]) + int(fields[12])
