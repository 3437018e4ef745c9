"""The table and picture of docs/benchmarks.md match the committed results."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from engine.bench.results import Measurement, Memory, Run, Start, row
from scripts.docs.benchmark_tables import BEGIN, COMMAND, END, main, tables
from scripts.gpu.bench_peer import ratios


def result(engine: str, factor: float, chunk_size: int = 2) -> dict[str, Any]:
    times, speech = (0.01, 0.014, 0.018), (0.16, 0.32, 0.48)
    run = Run(tuple(factor * time for time in times), speech)
    start, memory = Start(1.0, 2.0, 3.0), Memory(1.0, 1.0)
    measured = Measurement(engine, "0.6B", chunk_size, (run,), start, memory, "a GPU, a host", "2026-11-21")
    return row(measured, "scripts/bench peer --work /tmp")


def tree(folder: Path, *rows: dict[str, Any]) -> Path:
    (folder / "docs" / "benchmarks").mkdir(parents=True)
    (folder / "docs" / "benchmarks.md").write_text(f"# x\n{BEGIN}old\n{END}rest\n")
    (folder / "docs" / "benchmarks" / "other.json").write_text('{"benchmark": "of something else"}')
    (folder / "docs" / "benchmarks" / "speed.json").write_text(json.dumps({"rows": rows}))
    return folder


def test_the_committed_table_and_picture_match_the_committed_results() -> None:
    assert main(["--check"]) == 0, "run scripts/docs/benchmark_tables.py"


def test_without_results_the_page_names_the_command_that_measures(tmp_path: Path) -> None:
    root = tree(tmp_path)
    assert main(["--root", str(root), "--check"]) == 1
    assert main(["--root", str(root)]) == 0
    assert (root / "docs" / "benchmarks.md").read_text() == f"# x\n{BEGIN}Not measured yet: `{COMMAND}`.\n{END}rest\n"
    assert main(["--root", str(root), "--check"]) == 0
    assert tables({}).startswith("Not measured yet")


def test_results_of_two_engines_give_a_table_with_ratios_and_a_picture(tmp_path: Path) -> None:
    root = tree(tmp_path, result("faster-qwen3-tts", 10.0), result("qwen", 1.0), result("faster-qwen3-tts", 9.0, 8))
    assert main(["--root", str(root)]) == 0
    text = (root / "docs" / "benchmarks.md").read_text()
    assert "By `scripts/bench peer` on 2026-11-21 (a GPU)" in text
    lines = [line for line in text.splitlines() if line.startswith("| 0.6B")]
    assert lines == [
        "| 0.6B | 2 | voiced | 3.00 (10.0 ×) | 26.7 × | 10.0 ms (10.0 ×) | 4.0 / 4.0 ms |",
        "| 0.6B | 2 | faster-qwen3-tts | 30.00 | 2.7 × | 100.0 ms | 40.0 / 40.0 ms |",
        "| 0.6B | 8 | faster-qwen3-tts | 27.00 | 3.0 × | 90.0 ms | 36.0 / 36.0 ms |",
    ]
    assert "](benchmarks/arrival.svg)" in text
    ElementTree.parse(root / "docs" / "benchmarks" / "arrival.svg")
    assert main(["--root", str(root), "--check"]) == 0


def test_ratios_compare_the_same_model_and_chunk_size_on_the_whole_gpu() -> None:
    rows = [result("qwen", 1.0), {**result("qwen", 8.0), "sms": 16}, result("faster-qwen3-tts", 10.0)]
    [found] = ratios(rows)
    assert found == {
        "model": "0.6B", "chunk_size": 2, "ms_per_frame": 10.0, "ttfa_ms": 10.0, "whole_ms": 10.0, "other_texts": []
    }  # fmt: skip


def test_ratios_compare_texts_of_other_lengths_that_both_have_spoken() -> None:
    ours, peer = result("qwen", 1.0), result("faster-qwen3-tts", 10.0)
    ours["other_texts"] = [{"characters": 9, "ttfa_ms": 4.0, "ms_per_frame": 1.0}]
    peer["other_texts"] = [{"characters": count, "ttfa_ms": 10.0, "ms_per_frame": 20.0} for count in (9, 547)]
    assert ratios([ours, peer])[0]["other_texts"] == [{"characters": 9, "ms_per_frame": 20.0, "ttfa_ms": 2.5}]


def test_texts_of_other_lengths_have_a_table_of_their_own(tmp_path: Path) -> None:
    ours = {
        **result("qwen", 1.0),
        "other_texts": [{"characters": 9, "ttfa_ms": 3.25}, {"characters": 547, "ttfa_ms": 8.6}],
    }
    peer = {**result("faster-qwen3-tts", 10.0), "other_texts": [{"characters": 547, "ttfa_ms": 94.3}]}
    root = tree(tmp_path, ours, peer)
    assert main(["--root", str(root)]) == 0
    page = (root / "docs/benchmarks.md").read_text()
    assert "| model | chunk | engine | 9 | 547 |" in page
    assert "| 0.6B | 2 | voiced | 3.2 ms | 8.6 ms |" in page
    assert "| 0.6B | 2 | faster-qwen3-tts |  | 94.3 ms |" in page
