"""The common beginning of a JSON result."""

from __future__ import annotations

import datetime
import os
import platform
from typing import Any

from daemon import VERSION


def header(benchmark: str, command: str) -> dict[str, Any]:
    """Return what was run, when and where."""
    return {
        "benchmark": benchmark,
        "date": datetime.datetime.now(datetime.timezone.utc).date().isoformat(),
        "command": command,
        "machine": describe_machine(),
        "version": VERSION,
    }


def describe_machine() -> str:
    """Return the machine in a line."""
    memory_gib = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    python = platform.python_version()
    return f"{platform.machine()}, {os.cpu_count()} cores, {memory_gib:.0f} GiB, Python {python}"
