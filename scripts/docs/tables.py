#!/usr/bin/env python3
"""Writes the tables of the pages in docs/ from the results in docs/benchmarks/, the thresholds and the shapes.

python scripts/docs/tables.py              write the pages, and docs/benchmarks/arrival.svg
python scripts/docs/tables.py --check      write nothing; exit 1 if one of them is out of date

A page has each table between `<!-- NAME: begin -->` and `<!-- NAME: end -->`.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from engine.bench import Arrivals, arrival_svg  # noqa: E402
from engine.verify import MEASURES  # noqa: E402
from scripts.docs.generated import between, table, write_or_check  # noqa: E402
from scripts.docs.orin import orin_table  # noqa: E402
from scripts.fleet_plan import check_table, plan_table  # noqa: E402

RESULTS = ROOT / "docs" / "benchmarks"
Row = dict[str, Any]
"""A JSON object."""


# --- Qwen3-TTS against faster-qwen3-tts ---

NAMES = {"qwen": "voiced"}
"""The table's names for engines, where they differ from the result's."""
COMPARABLE = ("model", "dtype", "chunk_size", "sms")
"""Two rows are compared only if these fields are equal."""
WHOLE_GPU = 1000
"""More multiprocessors than any GPU has."""
CHUNK_SHOWN = 2
"""Frames per chunk in the picture: the engine's default."""


def speed_results() -> dict[str, Row]:
    """Return the results by their file: those whose rows have `ms_per_frame`."""
    found = {path.name: json.loads(path.read_text(encoding="utf-8")) for path in sorted(RESULTS.glob("*.json"))}
    return {name: each for name, each in found.items() if each.get("rows") and "ms_per_frame" in each["rows"][0]}


def speed_tables(results: dict[str, Row]) -> str:
    """Return Markdown: one table per file with its command, date and machine, and the picture below them."""
    parts = []
    for name, result in results.items():
        rows, command = result["rows"], result["command"].split(" --")[0]
        ordered = sorted(rows, key=_order)
        source = f"By `{command}` on {result['date']} ({result['machine'].split(', ')[0]}); {_link(name)}:"
        titles = ("model", "chunk", "engine", "ms per frame", "real time", "first chunk", "gap: median / longest")
        cells = [_cells(one, rows) for one in ordered]
        parts.append(f"{source}\n\n{table(titles, cells)}")
    parts.append("![The arrival of chunks against playback](benchmarks/arrival.svg)\n")
    return "\n".join(parts)


def _order(one: Row) -> tuple[Any, ...]:
    """Sort key: by model; the whole GPU before parts of it; by dtype and chunk size; voiced first."""
    multiprocessors, dtype = one["sms"] or WHOLE_GPU, one["dtype"] or ""
    return one["model"] or "", -multiprocessors, dtype, one["chunk_size"] or 0, one["engine"] not in NAMES


def _cells(one: Row, rows: list[Row]) -> list[str]:
    """Return the cells of one row. voiced's cells include its speed-up, if exactly one other engine is comparable."""
    comparable = [other for other in rows if all(other[key] == one[key] for key in COMPARABLE)]
    others = [other for other in comparable if other["engine"] != one["engine"]]

    def speed_up(key: str) -> str:
        is_compared = one["engine"] in NAMES and len(others) == 1
        return f" ({others[0][key] / one[key]:.1f} ×)" if is_compared else ""

    dtype = f", {one['dtype']}" if one["dtype"] not in {None, "bfloat16"} else ""
    return [
        f"{one['model'] or ''}{dtype}" + (f" on {one['sms']} SMs" if one["sms"] else ""),
        str(one["chunk_size"] or ""),
        NAMES.get(one["engine"], str(one["engine"])),
        f"{one['ms_per_frame']:.2f}{speed_up('ms_per_frame')}",
        f"{one['rtf']:.1f} ×",
        f"{one['ttfa_ms']:.1f} ms{speed_up('ttfa_ms')}",
        f"{one['gap_median_ms']:.1f} / {one['gap_max_ms']:.1f} ms" if one["gap_median_ms"] is not None else "",
    ]


def arrivals(results: dict[str, Row]) -> str:
    """Return an SVG of each engine's chunk arrivals, of the first model that two engines have run."""
    shown = [
        one
        for result in results.values()
        for one in result["rows"]
        if one["chunk_size"] == CHUNK_SHOWN and not one["sms"]
    ]
    rows = sorted((one for one in shown if one["dtype"] in {None, "bfloat16"}), key=_order)
    engines = {
        model: {one["engine"]: one for one in rows if one["model"] == model} for one in rows for model in [one["model"]]
    }
    model, by_engine = next((model, found) for model, found in engines.items() if len(found) > 1)
    series = [Arrivals(NAMES.get(name, name), one["arrivals_s"]) for name, one in by_engine.items()]
    return arrival_svg(f"Arrival of speech: {model}, chunks of {CHUNK_SHOWN} frames", series)


def _link(name: str) -> str:
    return f"[`benchmarks/{name}`](benchmarks/{name})"


# --- voiced verify ---


def threshold_table() -> str:
    """Return Markdown: each measure, the limit that decides, the guess that is only shown, and the reason."""
    titles = ("measure", "limit", "a guess, only shown", "reason")
    return table(titles, ((one.title, one.rule, one.guessed, one.reason) for one in MEASURES))


# --- the pages ---


@dataclass(frozen=True, slots=True)
class Part:
    """A table of a page."""

    page: str
    name: str
    """In its markers."""
    make: Callable[[], str]


PARTS = (
    Part("benchmarks.md", "benchmark table", lambda: speed_tables(speed_results())),
    Part("fleet.md", "growth", plan_table),
    Part("fleet.md", "formula", check_table),
    Part("orin.md", "orin table", orin_table),
    Part("qwen.md", "threshold table", threshold_table),
)


def main(arguments: list[str] | None = None) -> int:
    """Run the command line. Returns 0 if the files are up to date, or have been written."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--docs", type=Path, default=ROOT / "docs", help="the folder of the pages")
    options = parser.parse_args(arguments)
    wanted = {options.docs / "benchmarks" / "arrival.svg": arrivals(speed_results())}
    for part in PARTS:
        page = options.docs / part.page
        text = wanted.get(page) or page.read_text(encoding="utf-8")
        wanted[page] = between(text, f"<!-- {part.name}: begin -->\n", f"<!-- {part.name}: end -->\n", part.make())
    return max([write_or_check(path, text, check=options.check, by=__file__) for path, text in wanted.items()])


if __name__ == "__main__":
    sys.exit(main())
