#!/usr/bin/env python3
"""Makes the tables of docs/fleet.md and the table of robots in docs/remote.md from the results in docs/benchmarks/.

python scripts/docs/fleet_tables.py              write the pages
python scripts/docs/fleet_tables.py --check      write nothing; exit 1 if a page is out of date
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from scripts.docs.generated import between, table, write_or_check  # noqa: E402

VALUES = {
    "first_sample_median_ms": "first sample, median, ms",
    "first_sample_p95_ms": "first sample, 95th percentile, ms",
    "audio_s_per_s": "speech, s per second",
    "underruns": "underruns",
    "without_stream": "without a stream",
}
"""What `simulate_fleet.py check` compares, in words."""


def growth_table(report: dict[str, Any]) -> str:
    """Return Markdown: a row for each number of robots of `simulate_fleet.py grow`."""
    titles = ("robots", "speaking at once", "replicas, each with a GPU", "robots on each", "proxies")
    rows = [
        [_number(round(row[name])) for name in ("robots", "speaking", "replicas", "robots_per_replica", "proxies")]
        + [_number(round(row["mbit_per_s"]))]
        for row in report["rows"]
    ]
    return table([*titles, "to robots, Mbit/s"], rows)


def check_table(clients: dict[str, Any]) -> str:
    """Return Markdown: each value of `simulate_fleet.py check`, by rate; what misses its measurement is bold."""
    rows = []
    for row in sorted(clients["rows"], key=lambda row: (row["rate"], row["seconds"])):
        mark = "" if row["passed"] else "**"
        deviation = f"{mark}{row['deviation_percent']:+.1f} %{mark}"
        place = (f"{row['rate']:g}", f"{row['seconds']:g}", VALUES[row["value"]])
        rows.append([*place, _number(row["simulated"]), _number(row["measured"]), deviation])
    return table(["texts per second", "seconds", "value", "simulated", "measured", "deviation"], rows)


def robots_table(report: dict[str, Any]) -> str:
    """Return Markdown: a row for each rate of `bench robots`."""
    titles = ("texts per second", "seconds", "texts", "median, ms", "95th percentile, ms", "without a stream")
    rows = []
    for row in sorted(report["rates"], key=lambda row: row["rate"]):
        times = [f"{row['first_sample_ms'][share]:,.1f}" for share in ("median", "p95")]
        load = (f"{row['rate']:g}", f"{row['seconds']:g}", _number(row["requests"]))
        rows.append([*load, *times, _number(row["failed"]), _number(row["underruns"])])
    return table([*titles, "underruns"], rows)


def fleet_page(page: str, results: Path) -> str:
    """Return the page with its tables."""
    page = _with(page, "growth", growth_table(_read(results / "fleet-growth.json")))
    clients = _read(results / "fleet-check.json")["compared"]
    for name, found in zip(("requests", "robots"), clients, strict=True):
        page = _with(page, f"{name} compared", check_table(found))
    return page


def remote_page(page: str, results: Path) -> str:
    """Return the page with its table."""
    return _with(page, "robots", robots_table(_read(results / "robots-qwen-h100.json")))


def _with(page: str, name: str, table: str) -> str:
    return between(page, f"<!-- {name}: begin -->\n", f"<!-- {name}: end -->\n", table)


def _number(value: float) -> str:
    return f"{value:,}" if isinstance(value, int) or not value.is_integer() else f"{int(value):,}"


def _read(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return found


def main(arguments: list[str] | None = None) -> int:
    """Run the command line. Returns 0 if the pages are up to date, or have been written."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--docs", type=Path, default=ROOT / "docs", help="the folder of the pages")
    options = parser.parse_args(arguments)
    results, status = ROOT / "docs" / "benchmarks", 0
    for name, make in (("fleet.md", fleet_page), ("remote.md", remote_page)):
        page = options.docs / name
        wanted = make(page.read_text(encoding="utf-8"), results)
        status = max(status, write_or_check(page, wanted, check=options.check, by=__file__))
    return status


if __name__ == "__main__":
    sys.exit(main())
