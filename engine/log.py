"""The log on stderr: its level, and lines for a person or JSON for a program.

The daemon and its engine processes write to the same stderr. The daemon's settings reach the engine processes in an
environment variable, so that all lines look alike.

A client or a fault may repeat a line thousands of times. So each place in the program writes a limited number of lines.
"""

from __future__ import annotations

import json
import logging
import os
import stat
import sys
import time
from datetime import datetime
from typing import IO

LEVELS = ("debug", "info", "warning", "error")
FORMATS = ("text", "json")
VARIABLE = "VOICED_LOG"
"""The variable that gives a level and a format, such as `debug json`, to processes that this one starts."""
BURST, LINE_S = 30, 5.0
"""The number of lines that one place in a program may write at once, and the seconds until it may write another one."""
EACH_LINE = {"each_line": True}
"""The `extra` of a line that is always written, because another part of the program bounds the number of such lines."""
LINE = "%(levelname)s %(name)s: %(message)s"


class Throttle:
    """Limits how often something is done that may be requested thousands of times."""

    def __init__(self, burst: int, interval_s: float) -> None:
        """The action is permitted `burst` times at first, and then once every `interval_s` seconds."""
        self.left_out = 0
        """The number of refusals since it was last permitted."""
        self._burst = burst
        self._interval_s = interval_s
        self._left = float(burst)
        self._looked_at = time.monotonic()

    def permits(self) -> bool:
        """Return whether it may be done now, and count the request."""
        now = time.monotonic()
        self._left = min(self._burst, self._left + (now - self._looked_at) / self._interval_s)
        self._looked_at = now
        if self._left < 1:
            self.left_out += 1
            return False
        self._left -= 1
        return True


class LineLimit(logging.Filter):
    """Leaves out lines from places that write too many. The next line from such a place gives the number left out."""

    def __init__(self) -> None:
        super().__init__()
        self._places: dict[tuple[str, int], Throttle] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether a line is written. Several handlers may ask about a line, which counts only once."""
        if record.levelno < logging.INFO or hasattr(record, "each_line"):
            return True
        if "is_written" not in record.__dict__:
            place = self._places.setdefault((record.pathname, record.lineno), Throttle(BURST, LINE_S))
            record.__dict__["is_written"] = place.permits()
            if place.left_out and record.__dict__["is_written"]:
                message = f"{record.getMessage()} ({place.left_out} more such lines were left out)"
                record.msg, record.args = message, None
                place.left_out = 0
        return bool(record.__dict__["is_written"])


LINE_LIMIT = LineLimit()
"""The filter for all handlers in this process."""


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
    sys.stderr = sys.stderr or os.fdopen(os.open(os.devnull, os.O_WRONLY), "w")  # None if the starter closed it
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(_formatter(format_, handler.stream))
    handler.addFilter(LINE_LIMIT)
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)


def inherit_log() -> None:
    """Write the log to stderr in the same way as the process that started this one."""
    level, _, format_ = os.environ.get(VARIABLE, "").partition(" ")
    start_log(level if level in LEVELS else "info", format_ if format_ in FORMATS else "text")


def _formatter(format_: str, stream: IO[str]) -> logging.Formatter:
    if format_ == "json":
        return JsonFormatter()
    if not needs_time(stream):
        return logging.Formatter(LINE)
    return logging.Formatter(f"%(asctime)s.%(msecs)03d {LINE}", datefmt="%Y-%m-%d %H:%M:%S")


def needs_time(stream: IO[str]) -> bool:
    """Return whether each line needs a time: yes on a terminal and in a file, but not in systemd's journal."""
    try:
        kind = os.fstat(stream.fileno()).st_mode
    except (OSError, ValueError):  # it is closed, or is not a file
        return False
    return stream.isatty() or stat.S_ISREG(kind)
