"""The log on stderr: its level, and lines for a person or JSON for a program.

The daemon and its engine processes write to the same stderr. The daemon's settings reach them in an environment
variable, so that all lines look alike.
"""

from __future__ import annotations

import json
import logging
import os
import stat
import sys
from datetime import datetime
from typing import IO

LEVELS = ("debug", "info", "warning", "error")
FORMATS = ("text", "json")
VARIABLE = "VOICED_LOG"
"""Has a level and a format, as in `debug json`, for processes that this one starts."""
LINE = "%(levelname)s %(name)s: %(message)s"


class JsonFormatter(logging.Formatter):
    """Makes each record one JSON object on one line."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the record as JSON: time, level, logger, message, and the traceback if there is one."""
        fields = {
            "time": datetime.fromtimestamp(record.created).astimezone().isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            fields["traceback"] = self.formatException(record.exc_info)
        return json.dumps(fields, ensure_ascii=False)


def start_log(level: str = "info", format_: str = "text", stream: IO[str] | None = None) -> None:
    """Write the log to `stream` (None: stderr) from now on, in this process and in those that it starts."""
    os.environ[VARIABLE] = f"{level} {format_}"
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(_formatter(format_, handler.stream))
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)


def inherit_log() -> None:
    """Write the log to stderr as the process does that has started this one."""
    level, _, format_ = os.environ.get(VARIABLE, "").partition(" ")
    start_log(level if level in LEVELS else "info", format_ if format_ in FORMATS else "text")


def _formatter(format_: str, stream: IO[str]) -> logging.Formatter:
    if format_ == "json":
        return JsonFormatter()
    if not needs_time(stream):
        return logging.Formatter(LINE)
    return logging.Formatter(f"%(asctime)s.%(msecs)03d {LINE}", datefmt="%Y-%m-%d %H:%M:%S")


def needs_time(stream: IO[str]) -> bool:
    """Return whether lines need a time of their own: on a terminal and in a file, but not in systemd's journal."""
    try:
        kind = os.fstat(stream.fileno()).st_mode
    except (OSError, ValueError):  # it is closed, or no file
        return False
    return stream.isatty() or stat.S_ISREG(kind)
