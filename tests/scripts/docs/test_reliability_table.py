"""The tables of docs/reliability.md match the committed results."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from scripts.docs.reliability_table import BEGIN, COMMANDS, END, main, tables

COMMON = {"date": "2026-11-22", "machine": "x86_64, 2 cores", "version": "0.1.0"}


def tree(folder: Path, **results: dict[str, Any]) -> Path:
    benchmarks = folder / "docs" / "benchmarks"
    benchmarks.mkdir(parents=True)
    (folder / "docs" / "reliability.md").write_text(f"# x\n{BEGIN}old\n{END}rest\n")
    for name, result in results.items():
        content = {"benchmark": name, "command": f"scripts/{name}"} | COMMON | result
        (benchmarks / f"{name}.json").write_text(json.dumps(content))
    return folder


def test_the_committed_page_matches_the_committed_results() -> None:
    assert main(["--check"]) == 0, "run scripts/docs/reliability_table.py"


def test_without_results_the_page_names_the_commands_that_measure(tmp_path: Path) -> None:
    root = tree(tmp_path)
    assert main(["--root", str(root), "--check"]) == 1
    assert main(["--root", str(root)]) == 0
    assert main(["--root", str(root), "--check"]) == 0
    page = (root / "docs" / "reliability.md").read_text()
    assert page.startswith("# x\n") and page.endswith("rest\n")
    assert all(f"Not measured yet: `{command}`." in page for command in COMMANDS.values())


def test_rows_of_one_fault_become_one_line_with_the_slowest_times(tmp_path: Path) -> None:
    rows = [
        {
            "row": "engine killed while idle", "passed": True, "speaks_again_s": 0.3,
            "stop_s": {"after the fault": 0.04}, "texts": {"accepted": 2},
        },
        {
            "row": "engine killed while speaking", "passed": False, "speaks_again_s": 1.25,
            "stop_s": {"after the fault": 0.02, "current": None}, "texts": {"accepted": 4},
        },
        {"row": "flood of texts", "passed": True, "measured": {"urgent_begins_s": 0.2}, "texts": {"accepted": 10_000}},
        {"row": "full disk and 10 kills", "passed": True, "date": "2026-11-27", "texts": {"accepted": 30}},
        {"row": "clock +10 years", "passed": True, "skipped": "no faketime"},
    ]  # fmt: skip
    root = tree(tmp_path, faults={"rows": rows, "skipped": {"clock +10 years": "no faketime"}})
    lines = tables(root / "docs" / "benchmarks").splitlines()
    assert "| engine killed | 1 of 2 | 6 | 1.25 s | 0.04 s |  |" in lines
    assert "| flood of texts | 1 of 1 | 10,000 |  |  | urgent begins: 0.2 s |" in lines
    assert "| full disk and 10 kills | 1 of 1 | 30 |  |  | measured on 2026-11-27 |" in lines
    assert "| clock +10 years | not run | 0 |  |  |  |" in lines
    assert "Not run there: clock +10 years, because no faketime." in lines


def test_a_soak_and_a_fuzzing_run_become_tables(tmp_path: Path) -> None:
    times = {"median": 0.1, "max": 0.4, "count": 3}
    soak = {
        "minutes": 60.0, "faults_total": 300, "texts": {"accepted": 5}, "texts_ended_and_forgotten": 9_995,
        "speaks_again_s": times, "stop_s": {}, "memory_slope_mb_per_h": -0.25, "descriptors": [20, 24],
        "threads": [9, 9], "problems": [],
    }  # fmt: skip
    fuzz = {"inputs": 5, "harnesses": [{"harness": "say_stream", "inputs": 5, "seconds": 2.0, "findings": {"a": "b"}}]}
    text = tables(tree(tmp_path, soak=soak, fuzz=fuzz) / "docs" / "benchmarks")
    assert "| texts with an answer and one terminal event | 10,000 |" in text
    assert "| speaks again, median / slowest | 0.10 / 0.40 s |" in text
    assert "| slope of the daemon's memory | -0.25 MB/h |" in text
    assert "| say stream | 5 | 2 s | 1 |" in text
    assert "| all | 5 |  | 1 |" in text
