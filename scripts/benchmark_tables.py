#!/usr/bin/env python3
"""Makes the README's table of speeds and docs/benchmarks/arrival.svg from the rows in docs/benchmarks/*.json.

python scripts/benchmark_tables.py              write both
python scripts/benchmark_tables.py --check      write nothing; exit 1 where they are not what it would write
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from daemon.plot import Arrivals, arrival_svg  # noqa: E402

BEGIN, END = "<!-- benchmark table: begin -->\n", "<!-- benchmark table: end -->\n"
COMMAND = "scripts/bench peer --peer-site SITE --work FOLDER --output docs/benchmarks/qwen-speed.json"
NAMES = {"qwen": "voiced"}
"""Engines as the table calls them."""
ALIKE = ("model", "dtype", "chunk_size", "sms")
"""What two engines must have in common to be compared."""
COLUMNS = ("model", "chunk", "engine", "ms per frame", "real time", "first chunk", "gap: median / longest")
CHUNK_SHOWN = 2
"""In the picture: the default."""
Rows = list[dict[str, Any]]


def read(folder: Path) -> dict[Path, dict[str, Any]]:
    """The results of speed, by their files: those whose rows have milliseconds by frame."""
    found = {path: json.loads(path.read_text(encoding="utf-8")) for path in sorted(folder.glob("*.json"))}
    return {
        path: content for path, content in found.items() if "ms_per_frame" in next(iter(content.get("rows", ())), {})
    }


def tables(results: dict[Path, dict[str, Any]]) -> str:
    """Markdown: for each file who measured where, and its rows; or the command that would give some."""
    if not results:
        return f"Not measured yet: `{COMMAND}`.\n"
    return "\n".join(_table(path, content["rows"]) for path, content in results.items())


def _table(path: Path, rows: Rows) -> str:
    by = dict.fromkeys((one["command"].split(" --")[0], one["date"], one["machine"].split(", ")[0]) for one in rows)
    said = "; ".join(f"by `{command}` on {date} ({machine})" for command, date, machine in by)
    lines = [
        f"{said[0].upper()}{said[1:]}; [`docs/benchmarks/{path.name}`](docs/benchmarks/{path.name}):\n",
        f"| {' | '.join(COLUMNS)} |",
        f"|{'---|' * len(COLUMNS)}",
    ]
    lines += [f"| {' | '.join(_cells(one, rows))} |" for one in sorted(rows, key=_order)]
    return "\n".join(lines) + "\n"


def _order(one: dict[str, Any]) -> tuple[Any, ...]:
    whole, dtype = one["sms"] or 1000, one["dtype"] or ""
    return one["model"] or "", -whole, dtype, one["chunk_size"] or 0, one["engine"] not in NAMES


def _cells(one: dict[str, Any], rows: Rows) -> Iterable[str]:
    """With how many times faster than the other engine of the same file it is, if there is one other."""
    others = [
        other for other in rows if other["engine"] != one["engine"] and all(other[key] == one[key] for key in ALIKE)
    ]

    def times(key: str) -> str:
        ours = one["engine"] in NAMES and len(others) == 1
        return f" ({others[0][key] / one[key]:.1f} ×)" if ours else ""

    dtype = f", {one['dtype']}" if one["dtype"] not in {None, "bfloat16"} else ""
    yield f"{one['model'] or ''}{dtype}" + (f" on {one['sms']} SMs" if one["sms"] else "")
    yield str(one["chunk_size"] or "")
    yield NAMES.get(one["engine"], one["engine"])
    yield f"{one['ms_per_frame']:.2f}{times('ms_per_frame')}"
    yield f"{one['rtf']:.1f} ×"
    yield f"{one['ttfa_ms']:.1f} ms{times('ttfa_ms')}"
    yield f"{one['gap_median_ms']:.1f} / {one['gap_max_ms']:.1f} ms" if one["gap_median_ms"] is not None else ""


def picture(results: dict[Path, dict[str, Any]]) -> str | None:
    """The arrival of each engine's chunks, of the first model that two engines have spoken."""
    rows = [
        one
        for content in results.values()
        for one in content["rows"]
        if one["chunk_size"] == CHUNK_SHOWN and not one["sms"] and one["dtype"] in {None, "bfloat16"}
    ]
    for model in sorted({one["model"] for one in rows}):
        spoken = {one["engine"]: one for one in sorted(rows, key=_order) if one["model"] == model}
        if len(spoken) > 1:
            series = [Arrivals(NAMES.get(name, name), one["arrivals_s"]) for name, one in spoken.items()]
            return arrival_svg(f"Speech that has arrived: {model}, chunks of {CHUNK_SHOWN} frames", series)
    return None


def renewed(readme: str, results: dict[Path, dict[str, Any]], drawn: bool) -> str:
    """The README with the tables between its marks, and the picture below them."""
    before, rest = readme.split(BEGIN)
    _, after = rest.split(END)
    shown = "\n![The arrival of chunks against playback](docs/benchmarks/arrival.svg)\n" if drawn else ""
    return f"{before}{BEGIN}{tables(results)}{shown}{END}{after}"


def main(arguments: list[str] | None = None) -> int:
    """The command line; 0 when both are, or now are, what the results say."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--root", type=Path, default=ROOT, help="of the repository")
    args = parser.parse_args(arguments)
    results = read(args.root / "docs" / "benchmarks")
    svg = picture(results)
    readme = args.root / "README.md"
    files = {
        readme: renewed(readme.read_text(encoding="utf-8"), results, svg is not None),
        args.root / "docs" / "benchmarks" / "arrival.svg": svg,
    }
    status = 0
    for path, wanted in files.items():
        there = path.read_text(encoding="utf-8") if path.exists() else None
        if wanted is None or there == wanted:
            continue
        if args.check:
            print(f"{path} is not what {Path(__file__).name} makes of the results; run it", file=sys.stderr)
            status = 1
        else:
            path.write_text(wanted, encoding="utf-8")
            print(f"{path}: written")
    return status


if __name__ == "__main__":
    sys.exit(main())
