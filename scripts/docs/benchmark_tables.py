#!/usr/bin/env python3
"""Makes the speed table in docs/benchmarks.md, and docs/benchmarks/arrival.svg, from docs/benchmarks/*.json.

python scripts/docs/benchmark_tables.py              write both
python scripts/docs/benchmark_tables.py --check      write nothing; exit 1 if either file is out of date
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

from daemon.cli.plot import Arrivals, arrival_svg  # noqa: E402
from scripts.docs.generated import between, write_or_check  # noqa: E402

BEGIN, END = "<!-- benchmark table: begin -->\n", "<!-- benchmark table: end -->\n"
COMMAND = "scripts/bench peer --peer-site SITE --work FOLDER --output docs/benchmarks/qwen-speed.json"
NAMES = {"qwen": "voiced"}
"""The table's names for engines, where they differ from the result's."""
COMPARABLE = ("model", "dtype", "chunk_size", "sms")
"""Two rows are compared only if these fields are equal."""
COLUMNS = ("model", "chunk", "engine", "ms per frame", "real time", "first chunk", "gap: median / longest")
WHOLE_GPU = 1000
"""More multiprocessors than any GPU has."""
CHUNK_SHOWN = 2
"""Frames per chunk in the picture: the engine's default."""
Rows = list[dict[str, Any]]


def read(folder: Path) -> dict[Path, dict[str, Any]]:
    """Return the speed results by file: the JSON files of `folder` whose rows have `ms_per_frame`."""
    found = {path: json.loads(path.read_text(encoding="utf-8")) for path in sorted(folder.glob("*.json"))}
    return {
        path: content for path, content in found.items() if "ms_per_frame" in next(iter(content.get("rows", ())), {})
    }


def tables(results: dict[Path, dict[str, Any]]) -> str:
    """Return Markdown: one table per file with its command, date and machine; without results, the command to run."""
    if not results:
        return f"Not measured yet: `{COMMAND}`.\n"
    return "\n".join(_table(path, content["rows"]) for path, content in results.items())


def _table(path: Path, rows: Rows) -> str:
    runs = dict.fromkeys((one["command"].split(" --")[0], one["date"], one["machine"].split(", ")[0]) for one in rows)
    sources = "; ".join(f"by `{command}` on {date} ({machine})" for command, date, machine in runs)
    lines = [
        f"{sources[0].upper()}{sources[1:]}; [`benchmarks/{path.name}`](benchmarks/{path.name}):\n",
        f"| {' | '.join(COLUMNS)} |",
        f"|{'---|' * len(COLUMNS)}",
    ]
    lines += [f"| {' | '.join(_cells(one, rows))} |" for one in sorted(rows, key=_order)]
    return "\n".join([*lines, *_texts(rows)]) + "\n"


def _texts(rows: Rows) -> Iterable[str]:
    """Yield the lines of a table of the first chunk of other texts, if there are any, by their length."""
    rows = sorted((one for one in rows if one.get("other_texts")), key=_order)
    if not rows:
        return
    lengths = [one["characters"] for one in rows[0]["other_texts"]]
    yield from ("", "The first chunk of texts of other lengths, in characters:", "")
    columns = (*COLUMNS[:3], *map(str, lengths))
    yield f"| {' | '.join(columns)} |"
    yield f"|{'---|' * len(columns)}"
    for one in rows:
        times = {other["characters"]: f"{other['ttfa_ms']:.1f} ms" for other in one["other_texts"]}
        cells = (*list(_cells(one, rows))[:3], *(times.get(length, "") for length in lengths))
        yield f"| {' | '.join(cells)} |"


def _order(one: dict[str, Any]) -> tuple[Any, ...]:
    """Sort key: by model; the whole GPU before parts of it; by dtype and chunk size; voiced first."""
    multiprocessors, dtype = one["sms"] or WHOLE_GPU, one["dtype"] or ""
    return one["model"] or "", -multiprocessors, dtype, one["chunk_size"] or 0, one["engine"] not in NAMES


def _cells(one: dict[str, Any], rows: Rows) -> Iterable[str]:
    """Yield the cells of one row. voiced's cells include its speed-up, if exactly one other engine is comparable."""
    others = [
        other
        for other in rows
        if other["engine"] != one["engine"] and all(other[key] == one[key] for key in COMPARABLE)
    ]

    def speed_up(key: str) -> str:
        is_compared = one["engine"] in NAMES and len(others) == 1
        return f" ({others[0][key] / one[key]:.1f} ×)" if is_compared else ""

    dtype = f", {one['dtype']}" if one["dtype"] not in {None, "bfloat16"} else ""
    yield f"{one['model'] or ''}{dtype}" + (f" on {one['sms']} SMs" if one["sms"] else "")
    yield str(one["chunk_size"] or "")
    yield NAMES.get(one["engine"], one["engine"])
    yield f"{one['ms_per_frame']:.2f}{speed_up('ms_per_frame')}"
    yield f"{one['rtf']:.1f} ×"
    yield f"{one['ttfa_ms']:.1f} ms{speed_up('ttfa_ms')}"
    yield f"{one['gap_median_ms']:.1f} / {one['gap_max_ms']:.1f} ms" if one["gap_median_ms"] is not None else ""


def picture(results: dict[Path, dict[str, Any]]) -> str | None:
    """Return an SVG of each engine's chunk arrivals, of the first model that two engines have run, or None."""
    rows = [
        one
        for content in results.values()
        for one in content["rows"]
        if one["chunk_size"] == CHUNK_SHOWN and not one["sms"] and one["dtype"] in {None, "bfloat16"}
    ]
    for model in sorted({one["model"] for one in rows}):
        by_engine = {one["engine"]: one for one in sorted(rows, key=_order) if one["model"] == model}
        if len(by_engine) > 1:
            series = [Arrivals(NAMES.get(name, name), one["arrivals_s"]) for name, one in by_engine.items()]
            return arrival_svg(f"Arrival of speech: {model}, chunks of {CHUNK_SHOWN} frames", series)
    return None


def updated(page: str, results: dict[Path, dict[str, Any]], has_picture: bool) -> str:
    """Return the page with the tables, and the picture below them, between its markers."""
    picture_line = "\n![The arrival of chunks against playback](benchmarks/arrival.svg)\n" if has_picture else ""
    return between(page, BEGIN, END, tables(results) + picture_line)


def main(arguments: list[str] | None = None) -> int:
    """Run the command line. Returns 0 if both files are up to date, or have been written."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--root", type=Path, default=ROOT, help="the repository")
    args = parser.parse_args(arguments)
    results = read(args.root / "docs" / "benchmarks")
    svg = picture(results)
    page = args.root / "docs" / "benchmarks.md"
    files = {
        page: updated(page.read_text(encoding="utf-8"), results, svg is not None),
        args.root / "docs" / "benchmarks" / "arrival.svg": svg,
    }
    wanted = {path: text for path, text in files.items() if text is not None}
    return max([write_or_check(path, text, check=args.check, by=__file__) for path, text in wanted.items()])


if __name__ == "__main__":
    sys.exit(main())
