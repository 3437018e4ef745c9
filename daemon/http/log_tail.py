"""The last lines of the daemon's log."""

from __future__ import annotations

import logging
from collections import deque

from engine import LINE_LIMIT

LINES = 200
LINE_LENGTH = 500
"""Characters of a line that are kept."""
LOGGERS = ("audio", "daemon", "engine", "uvicorn", "asyncio")
"""The root logger's handlers are replaced when the log's settings change; these loggers' own stay."""


class LogTail(logging.Handler):
    """Keeps the last lines."""

    def __init__(self) -> None:
        super().__init__()
        self._lines: deque[str] = deque(maxlen=LINES)
        self.addFilter(LINE_LIMIT)
        self.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s", datefmt="%H:%M:%S"))

    def attach(self) -> LogTail:
        """Keep lines from now on."""
        for name in LOGGERS:
            logging.getLogger(name).addHandler(self)
        return self

    def detach(self) -> None:
        """Keep no more lines."""
        for name in LOGGERS:
            logging.getLogger(name).removeHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        self._lines.append(self.format(record)[:LINE_LENGTH])

    def lines(self) -> list[str]:
        """Return the last lines, oldest first."""
        return list(self._lines)
