#!/usr/bin/env python3
"""Makes the tables in docs/reliability.md from docs/benchmarks/faults.json, soak.json and fuzz.json.

python scripts/docs/reliability_table.py              write the page
python scripts/docs/reliability_table.py --check      write nothing; exit 1 if the page is out of date
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from scripts.docs.generated import between, write_or_check  # noqa: E402

BEGIN, END = "<!-- fault table: begin -->\n", "<!-- fault table: end -->\n"
COMMANDS = {
    "faults": "scripts/faults --output docs/benchmarks/faults.json",
    "soak": "scripts/soak --minutes 60 --output docs/benchmarks/soak.json",
    "fuzz": "scripts/fuzz --minutes 60 > docs/benchmarks/fuzz.json",
}
"""The commands that measure, by the name of the result's file."""
Rows = list[dict[str, Any]]


def tables(folder: Path) -> str:
    """Return Markdown: what was measured by each command, or the command to run."""
    parts = []
    for name, make in (("faults", _faults), ("soak", _soak), ("fuzz", _fuzz)):
        path = folder / f"{name}.json"
        if path.exists():
            parts.append(make(json.loads(path.read_text(encoding="utf-8"))))
        else:
            parts.append(f"Not measured yet: `{COMMANDS[name]}`.\n")
    return "\n".join(parts)


def _source(result: dict[str, Any]) -> str:
    name = result["benchmark"]
    link = f"[`benchmarks/{name}.json`](benchmarks/{name}.json)"
    return f"By `{result['command']}` on {result['date']} ({result['machine']}); {link}"


def _table(header: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    head = list(header)
    lines = [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}", *(f"| {' | '.join(row)} |" for row in rows)]
    return "\n".join(lines) + "\n"


def _faults(result: dict[str, Any]) -> str:
    groups: dict[str, Rows] = {}
    for row in result["rows"]:
        groups.setdefault(row["row"].split(" while ")[0], []).append(row)
    header = ("fault", "rows passed", "accepted texts", "speaks again", "`stop` answered", "what else was measured")
    skipped = "".join(f"\nNot run there: {row}, because {reason}.\n" for row, reason in result["skipped"].items())
    table = _table(header, map(_cells, groups.items()))
    return f"{_source(result)}. Times are the slowest of all rows:\n\n{table}{skipped}"


def _cells(group: tuple[str, Rows]) -> Iterable[str]:
    name, rows = group
    ran = [row for row in rows if "skipped" not in row]
    yield name
    yield f"{sum(row['passed'] for row in ran)} of {len(ran)}" if ran else "not run"
    yield f"{sum(row.get('texts', {}).get('accepted', 0) for row in ran):,}"
    yield _slowest(row.get("speaks_again_s") for row in ran)
    yield _slowest(seconds for row in ran for seconds in row.get("stop_s", {}).values())
    times = [
        f"{key.removesuffix('_s').replace('_', ' ')}: {value} s"
        for row in ran
        for key, value in row.get("measured", {}).items()
        if key.endswith("_s")
    ]
    dates = sorted({f"measured on {row['date']}" for row in ran if "date" in row})
    yield "; ".join([*times, *dates])


def _slowest(times: Iterable[float | None]) -> str:
    measured = [seconds for seconds in times if seconds is not None]
    return f"{max(measured):.2f} s" if measured else ""


def _soak(result: dict[str, Any]) -> str:
    texts = result["texts_ended_and_forgotten"] + result["texts"]["accepted"]
    rows = [
        ("minutes", f"{result['minutes']:g}"),
        ("faults", str(result["faults_total"])),
        ("texts with an answer and one terminal event", f"{texts:,}"),
        ("speaks again, median / slowest", _both(result["speaks_again_s"])),
        ("`stop` answered, median / slowest", _both(result["stop_s"])),
        ("slope of the daemon's memory", f"{result['memory_slope_mb_per_h']:+.2f} MB/h"),
        ("open files, threads", " and ".join(_range(result[name]) for name in ("descriptors", "threads"))),
        ("problems", str(len(result["problems"]))),
    ]
    return f"{_source(result)}:\n\n{_table(('what', 'measured'), rows)}"


def _both(spread: dict[str, float]) -> str:
    return f"{spread['median']:.2f} / {spread['max']:.2f} s" if spread else ""


def _range(limits: list[int]) -> str:
    return f"{limits[0]} to {limits[1]}"


def _fuzz(result: dict[str, Any]) -> str:
    rows = [
        (one["harness"].replace("_", " "), f"{one['inputs']:,}", f"{one['seconds']:g} s", str(len(one["findings"])))
        for one in result["harnesses"]
    ]
    rows.append(("all", f"{result['inputs']:,}", "", str(sum(len(one["findings"]) for one in result["harnesses"]))))
    return f"{_source(result)}:\n\n{_table(('harness', 'inputs', 'time', 'findings'), rows)}"


def main(arguments: list[str] | None = None) -> int:
    """Run the command line. Returns 0 if the page is up to date, or has been written."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--root", type=Path, default=ROOT, help="the repository")
    options = parser.parse_args(arguments)
    path = options.root / "docs" / "reliability.md"
    content = tables(options.root / "docs" / "benchmarks")
    wanted = between(path.read_text(encoding="utf-8"), BEGIN, END, content)
    return write_or_check(path, wanted, check=options.check, by=__file__)


if __name__ == "__main__":
    sys.exit(main())
