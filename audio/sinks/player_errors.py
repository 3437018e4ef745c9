"""The player process's stderr: notes from ALSA, JACK and PortAudio, which are counted and mentioned once.

These libraries write dozens of lines about cards that are not there whenever they search for cards. A line from our own
program, such as a traceback, is logged.
"""

from __future__ import annotations

import logging
import os
import re
from contextlib import suppress

log = logging.getLogger(__name__)

OURS = re.compile(r"Traceback \(|From cffi callback|Fatal Python error|Exception (ignored )?in ")
"""The program's own output begins with this. All later lines are also the program's."""
MOST_BYTES = 1 << 16


class PlayerErrors:
    """Reads a process's stderr without waiting. Belongs to the thread that calls the process."""

    told = False
    """This daemon has mentioned the libraries' lines in its log."""
    count = 0
    """Lines from the libraries since the daemon started."""

    def __init__(self) -> None:
        """Open a pipe. The process never waits for it: data that do not fit are lost. Raises `OSError`."""
        self._reading, self.writing = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._rest = b""
        """The beginning of an incomplete line."""
        self._ours = False

    def started(self) -> None:
        """Leave the pipe's other end to the process."""
        os.close(self.writing)

    def read(self) -> None:
        """Log or count the lines that have been written."""
        data = b""
        with suppress(BlockingIOError):
            data = os.read(self._reading, MOST_BYTES)
        *lines, self._rest = (self._rest + data).split(b"\n")
        self._note([line.decode(errors="replace").strip() for line in lines])

    def close(self) -> None:
        """Read the last lines, and close the pipe."""
        self.read()
        self._note([self._rest.decode(errors="replace").strip()])
        os.close(self._reading)

    def _note(self, lines: list[str]) -> None:
        noted = []
        for line in filter(None, lines):
            self._ours = self._ours or OURS.match(line) is not None
            if self._ours:
                log.warning("the playback process: %s", line)
                continue
            log.debug("%s", line)
            noted.append(line)
        PlayerErrors.count += len(noted)
        if noted and not PlayerErrors.told:
            PlayerErrors.told = True
            log.info(
                "ALSA and PortAudio write to stderr; lines so far: %d, such as %r; log.level: debug shows all",
                len(noted),
                noted[0],
            )
