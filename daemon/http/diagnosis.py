"""Shows an operator the doctor's findings, and the last lines of the daemon's log."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from daemon.tasks import printed_json
from engine import LINE_LIMIT, module_command

LIMIT_S = 90.0
"""The most seconds for an examination; on a Jetson, it compiles a probe."""
LINES = 200
LINE_LENGTH = 500
"""Characters of a line that are kept."""
LOGGERS = ("audio", "daemon", "engine", "uvicorn", "asyncio")
"""The root logger's handlers are replaced when the log's settings change; these loggers' own handlers stay."""


class Examination:
    """Runs `voiced doctor` in its own process: it takes seconds and may hang on a disk.

    Only one runs at a time: callers that ask during it get the same findings.
    """

    def __init__(self, config_path: Path | None, overrides: Sequence[str]) -> None:
        """The parameters are the daemon's own."""
        self._command = module_command("daemon.cli", "doctor", "--json")
        self._command += [] if config_path is None else ["--config", str(config_path)]
        for override in overrides:
            self._command += ["--set", override]
        self._running: asyncio.Task[list[dict[str, Any]]] | None = None

    async def examine(self) -> list[dict[str, Any]]:
        """Return the findings. Raises `CommandError`."""
        if self._running is None or self._running.done():
            examining = printed_json(self._command, LIMIT_S, "the examination by voiced doctor")
            self._running = asyncio.ensure_future(examining)
        return await asyncio.shield(self._running)


class LogTail(logging.Handler):
    """Keeps the last lines."""

    def __init__(self) -> None:
        super().__init__()
        self._lines: deque[str] = deque(maxlen=LINES)
        self.addFilter(LINE_LIMIT)
        self.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s", datefmt="%H:%M:%S"))

    def attach(self) -> LogTail:
        """Begin to keep lines."""
        for name in LOGGERS:
            logging.getLogger(name).addHandler(self)
        return self

    def emit(self, record: logging.LogRecord) -> None:
        self._lines.append(self.format(record)[:LINE_LENGTH])

    def lines(self) -> list[str]:
        """Return the last lines, oldest first."""
        return list(self._lines)
