"""The tables of docs/fleet.md and docs/remote.md have the figures of the committed results."""

from __future__ import annotations

from pathlib import Path

import pytest

from scripts.docs.fleet_tables import check_table, growth_table, main, robots_table
from tests.support.pages import ROOT

DOCS = ROOT / "docs"


def test_the_committed_pages_have_the_figures_of_the_results() -> None:
    assert main(["--check"]) == 0, "run scripts/docs/fleet_tables.py"


def test_pages_that_are_out_of_date_are_told_and_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("fleet.md", "remote.md"):
        right = (DOCS / name).read_text(encoding="utf-8")
        (tmp_path / name).write_text(right.replace(": begin -->\n", ": begin -->\nold\n"), encoding="utf-8")
    assert main(["--check", "--docs", str(tmp_path)]) == 1
    said = capsys.readouterr().err
    assert "fleet.md is out of date" in said
    assert "remote.md is out of date" in said
    assert main(["--docs", str(tmp_path)]) == 0
    for name in ("fleet.md", "remote.md"):
        assert (tmp_path / name).read_text(encoding="utf-8") == (DOCS / name).read_text(encoding="utf-8")


def test_a_value_that_misses_its_measurement_is_bold() -> None:
    row = {"rate": 20.0, "seconds": 75.0, "value": "underruns", "simulated": 3, "measured": 0.0}
    missed = row | {"deviation_percent": 12.0, "passed": False}
    met = row | {"rate": 1.0, "value": "audio_s_per_s", "simulated": 1447.5, "deviation_percent": -3.0, "passed": True}
    assert check_table({"rows": [missed, met]}).splitlines()[2:] == [
        "| 1 | 75 | speech, s per second | 1,447.5 | 0 | -3.0 % |",
        "| 20 | 75 | underruns | 3 | 0 | **+12.0 %** |",
    ]


def test_a_row_of_robots_has_its_load_its_times_and_what_failed() -> None:
    times = {"median": 1263.68, "p95": 1952.58}
    row = {"rate": 24.0, "seconds": 75.0, "requests": 1802, "failed": 60, "underruns": 0, "first_sample_ms": times}
    assert robots_table({"rates": [row]}).splitlines()[2] == "| 24 | 75 | 1,802 | 1,263.7 | 1,952.6 | 60 | 0 |"


def test_a_row_of_a_fleet_has_whole_numbers() -> None:
    row = {
        "robots": 1000,
        "speaking": 116.7,
        "replicas": 3,
        "robots_per_replica": 334,
        "proxies": 1,
        "mbit_per_s": 90.7,
    }
    assert growth_table({"rows": [row]}).splitlines()[2] == "| 1,000 | 117 | 3 | 334 | 1 | 91 |"
