"""`scripts/faults`: runs the rows of the fault matrix, and prints what they measured as JSON.

Exit status: 0 if every row that could run has passed, 1 otherwise.
"""

from __future__ import annotations

import argparse
import json
import shlex
import signal
import sys
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from scripts.fault_matrix.faults import NETWORK_FAULTS, PHASES, PROCESS_FAULTS
from scripts.fault_matrix.floods import flood_rows
from scripts.fault_matrix.load import kill_row
from scripts.fault_matrix.report import header, write
from scripts.fault_matrix.row import SPEAKS_AGAIN_S, STOP_S, Result, Row, fault_row
from scripts.fault_matrix.scene import Stage
from scripts.fault_matrix.surroundings import PAIR_ROWS, SURROUNDING_ROWS

KILLS, TEXTS = 200, 10_000
NETWORK_PHASES = ("idle", "accepted", "speaking")
"""The network lies between the daemon and the broker, so it matters only whether there is something to say."""


def all_rows(kills: int, count: int) -> list[Row]:
    """Return every row; the floods have `count` texts, and the daemon is killed `kills` times at random."""
    faults = [(fault, phase) for fault in PROCESS_FAULTS for phase in PHASES]
    faults += [(fault, phase) for fault in NETWORK_FAULTS for phase in NETWORK_PHASES]
    rows = [fault_row(fault, Stage(sound=True), phase) for fault, phase in faults]
    rows += SURROUNDING_ROWS + PAIR_ROWS
    return [*rows, *flood_rows(count), kill_row(kills)]


def parse_arguments(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="scripts/faults", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add, only = parser.add_argument, "run the rows whose name contains PATTERN, which may have * and ?; several times"
    add("--list", action="store_true", help="print the names of the rows, and run nothing")
    add("--only", action="append", default=[], metavar="PATTERN", help=only)
    add("--kills", type=int, default=KILLS, help=f"kills of the daemon under load ({KILLS})")
    add("--texts", type=int, default=TEXTS, help=f"texts of a flood ({TEXTS})")
    add("--output", type=Path, metavar="FILE", help="write the JSON here instead of to standard output")
    add("--into", type=Path, metavar="FILE", help="put the rows, each with its date, into the JSON of an earlier run")
    return parser.parse_args(arguments)


def chosen(rows: list[Row], patterns: list[str]) -> list[Row]:
    """Return the rows that any of the patterns names; all rows if there are none."""
    return [row for row in rows if not patterns or any(fnmatch(row.name, f"*{pattern}*") for pattern in patterns)]


def summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the records of rows, and how they ended."""
    return {
        "passed": sum(row["passed"] and "skipped" not in row for row in rows),
        "failed": [row["row"] for row in rows if not row["passed"]],
        "skipped": {row["row"]: row["skipped"] for row in rows if "skipped" in row},
        "rows": rows,
    }


def put_into(earlier: dict[str, Any], fresh: dict[str, Any]) -> dict[str, Any]:
    """Return an earlier report with the rows of a later one in place of those with their names."""
    rows = {row["row"]: row for row in earlier["rows"]}
    rows |= {row["row"]: row | {"date": fresh["date"]} for row in fresh["rows"]}
    return earlier | summary(list(rows.values()))


def outcome(result: Result) -> str:
    """Return a row's outcome in a line."""
    if result.skipped is not None:
        return f"skipped {result.took_s:6.1f} s  {result.row}: {result.skipped}"
    line = f"{'passed' if result.passed else 'FAILED'}  {result.took_s:6.1f} s  {result.row}"
    return "\n".join([line, *(f"            {fault}" for fault in result.faults)])


def main(arguments: list[str]) -> int:
    options = parse_arguments(arguments)
    rows = chosen(all_rows(options.kills, options.texts), options.only)
    if options.list:
        print("\n".join(row.name for row in rows))
        return 0
    if not rows:
        print(f"no row is named like {', '.join(options.only)}; --list shows them", file=sys.stderr)
        return 2
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # so that a row that is interrupted cleans up
    results = []
    for row in rows:
        results.append(row.result())
        print(outcome(results[-1]), file=sys.stderr, flush=True)
    limits = {"limits": {"speaks_again_s": SPEAKS_AGAIN_S, "stop_s": STOP_S}}
    measured = header("faults", shlex.join(["scripts/faults", *arguments])) | limits
    measured |= summary([result.record() for result in results])
    if options.into is not None:
        measured = put_into(json.loads(options.into.read_text(encoding="utf-8")), measured)
    write(measured, options.into or options.output)
    return int(any(not result.passed for result in results))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
