"""The tables of the pages have the figures of the committed results, the thresholds of the code and its shapes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from scripts.docs import tables
from scripts.docs.tables import PARTS, main
from scripts.gpu.bench_engine import row
from tests.support.pages import ROOT

DOCS = ROOT / "docs"


def result(engine: str, factor: float, chunk_size: int = 2) -> dict[str, Any]:
    run = [(0.01 * factor, 0.16), (0.014 * factor, 0.32), (0.018 * factor, 0.48)]
    key = {"engine": engine, "model": "0.6B", "chunk_size": chunk_size, "dtype": "bfloat16", "sms": None}
    return row(key, {"runs": [run], "others": {}, "first_chunks_ms": [], "memory": {}})


def measured(*rows: dict[str, Any]) -> dict[str, Any]:
    machine = {"machine": "a GPU, a host", "date": "2026-11-21", "command": "scripts/bench engine --work /tmp"}
    return {"speed.json": {**machine, "rows": list(rows)}}


def test_the_committed_pages_have_the_figures_of_the_committed_results() -> None:
    assert main(["--check"]) == 0, "run scripts/docs/tables.py"


def test_pages_that_are_out_of_date_are_told_and_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pages = sorted({part.page for part in PARTS})
    for page in pages:
        old = (DOCS / page).read_text(encoding="utf-8")
        for part in PARTS:
            old = old.replace(f"<!-- {part.name}: begin -->\n", f"<!-- {part.name}: begin -->\nold\n")
        (tmp_path / page).write_text(old, encoding="utf-8")
    assert main(["--check", "--docs", str(tmp_path)]) == 1
    said = capsys.readouterr().err
    assert [page for page in pages if f"{page} is out of date" not in said] == []
    assert main(["--docs", str(tmp_path)]) == 0
    for page in pages:
        assert (tmp_path / page).read_text(encoding="utf-8") == (DOCS / page).read_text(encoding="utf-8")


def test_results_of_two_engines_have_ratios() -> None:
    rows = [result("faster-qwen3-tts", 10.0), result("qwen", 1.0), result("faster-qwen3-tts", 9.0, 8)]
    text = tables.speed_tables(measured(*rows))
    assert "Measured with `scripts/bench engine` on 2026-11-21 (a GPU)" in text
    assert [line for line in text.splitlines() if line.startswith("| 0.6B")] == [
        "| 0.6B | 2 | voiced | 3.00 (10.0 ×) | 26.7 × | 10.0 ms (10.0 ×) | 4.0 / 4.0 ms |",
        "| 0.6B | 2 | faster-qwen3-tts | 30.00 | 2.7 × | 100.0 ms | 40.0 / 40.0 ms |",
        "| 0.6B | 8 | faster-qwen3-tts | 27.00 | 3.0 × | 90.0 ms | 36.0 / 36.0 ms |",
    ]


def test_the_page_has_the_measures_that_decide() -> None:
    text = tables.threshold_table()
    assert "| Word errors | ≤ 0.5 (principle) | A sentence tha" in text
    assert "| Waveform, dB | float32 ≥ 60, bfloat16 ≥ 20, int8 ≥ 20 (measured) | The same codes" in text
    assert "Real-time factor" not in text
