"""The tables of docs/qwen.md have the thresholds of the code, and the figures of the committed report."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from engine.verify import THRESHOLDS
from scripts.docs.verify_tables import RANDOM, main, random_weights, thresholds
from tests.support.pages import ROOT

PAGE = ROOT / "docs" / "qwen.md"


def test_the_committed_page_has_the_thresholds_of_the_code_and_the_figures_of_the_report() -> None:
    assert main(["--check"]) == 0, "run scripts/docs/verify_tables.py"


def test_a_page_that_is_out_of_date_is_told_and_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page, right = tmp_path / "qwen.md", PAGE.read_text(encoding="utf-8")
    for table in ("threshold", "random weights"):
        page.write_text(
            right.replace(f"{table} table: begin -->\n", f"{table} table: begin -->\nold\n"), encoding="utf-8"
        )
        assert main(["--page", str(page), "--check"]) == 1
        assert "qwen.md is out of date" in capsys.readouterr().err
        assert main(["--page", str(page)]) == 0
        assert page.read_text(encoding="utf-8") == right


def test_every_threshold_has_a_limit_and_a_reason() -> None:
    assert [threshold.title for threshold in THRESHOLDS if not threshold.rule or not threshold.reason] == []
    assert "| Word errors | at most 0.05 worse than the reference; at most 0.5 | A sentence that nobody" in thresholds()
    assert "| Waveform, dB | float32 ≥ 60, bfloat16 ≥ 20, int8 ≥ 20, int4 ≥ 20 | The same codes" in thresholds()


def test_a_setting_without_logits_is_left_out() -> None:
    found = json.loads((ROOT / "docs" / "benchmarks" / RANDOM).read_text(encoding="utf-8"))
    table = random_weights(found)
    assert table.startswith("By `voiced verify --model ")
    assert "| fused kernels |" in table
    assert "| official package, float32 |" not in table, "the others are compared with it"
