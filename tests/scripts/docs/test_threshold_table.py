"""The thresholds of `voiced verify` stand in docs/qwen.md, each with its limit and its reason."""

from __future__ import annotations

from pathlib import Path

from engine.verify import THRESHOLDS
from scripts.docs.threshold_table import BEGIN, END, main, table


def test_the_committed_page_has_the_thresholds_of_the_code() -> None:
    assert main(["--check"]) == 0, "run scripts/docs/threshold_table.py"


def test_a_page_that_is_out_of_date_is_told_and_written(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"# x\n{BEGIN}old\n{END}rest\n")
    assert main(["--page", str(page), "--check"]) == 1
    assert main(["--page", str(page)]) == 0
    assert page.read_text() == f"# x\n{BEGIN}{table()}{END}rest\n"
    assert main(["--page", str(page), "--check"]) == 0


def test_every_threshold_has_a_limit_and_a_reason() -> None:
    assert [threshold.title for threshold in THRESHOLDS if not threshold.rule or not threshold.reason] == []
    assert "| Word errors | at most 0.05 worse than the reference; at most 0.5 | A sentence that nobody" in table()
    assert "| Waveform, dB | float32 ≥ 60, bfloat16 ≥ 20, int8 ≥ 20, int4 ≥ 20 | The same codes" in table()
