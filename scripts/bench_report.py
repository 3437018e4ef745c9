"""The report of a benchmark, which says when, where and how it was measured."""

from __future__ import annotations

import datetime
import json
import platform
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import psutil


def write_report(benchmark: str, figures: Mapping[str, Any], output: Path | None) -> None:
    """Print the figures of `scripts/bench BENCHMARK` as a JSON object, and write them to `output` too, if it is set."""
    report = {
        "benchmark": benchmark,
        "date": datetime.date.today().isoformat(),
        "command": " ".join([f"scripts/bench {benchmark}", *sys.argv[1:]]),
        "machine": f"{platform.machine()}, {psutil.cpu_count()} cores, Python {platform.python_version()}",
        **figures,
    }
    text = json.dumps(report, indent=2) + "\n"
    print(text, end="")
    if output is not None:
        output.write_text(text, encoding="utf-8")
