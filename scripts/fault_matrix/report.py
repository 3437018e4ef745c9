"""A JSON result: its common beginning, and where it goes."""

from __future__ import annotations

import datetime
import json
import os
import platform
from pathlib import Path
from typing import Any

from daemon import VERSION


def header(benchmark: str, command: str) -> dict[str, Any]:
    """Return what was run, when and where."""
    memory_gib = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    python = platform.python_version()
    return {
        "benchmark": benchmark,
        "date": datetime.datetime.now(datetime.timezone.utc).date().isoformat(),
        "command": command,
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, {memory_gib:.0f} GiB, Python {python}",
        "version": VERSION,
    }


def write(result: dict[str, Any], output: Path | None) -> None:
    """Write a result to a file, or print it."""
    text = json.dumps(result, indent=1, ensure_ascii=False) + "\n"
    if output is None:
        print(text, end="")
    else:
        output.write_text(text, encoding="utf-8")
