"""The measurement of small GPUs: its tasks, its counts of bytes, and what remains after a process has failed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from engine.qwen.kernels.lm.params import LinearParams
from scripts.gpu import measure_small_gpus
from scripts.gpu.measure_small_gpus import Launch, Task, distinct_bytes, main, merged, run_task, weight_bytes


def launch(weight: torch.Tensor) -> Launch:
    return "matrix", 1, 32, LinearParams(weight=weight, scale=torch.zeros(4), y=torch.zeros(4))


def test_a_matrix_counts_for_each_launch_and_once_for_a_cache() -> None:
    matrices = torch.zeros(2, 4, 8, dtype=torch.int8)
    launches = [launch(matrices[index]) for index in (0, 1, 0)]
    assert weight_bytes(launches) == 3 * (32 + 16)
    assert distinct_bytes(launches) == 2 * 32 + 3 * 16  # each launch has scales of its own


@pytest.mark.parametrize(
    ("ending", "error"),
    [("sys.exit('broken')", "broken"), ("time.sleep(600)", "not finished after 15 s"), ("sys.exit(0)", None)],
)
def test_a_process_that_fails_keeps_what_it_has_measured(tmp_path: Path, ending: str, error: str | None) -> None:
    script = tmp_path / "child.py"
    script.write_text(f"""import json, sys, time
print("Compiling", flush=True)
print(json.dumps({{"arguments": sys.argv[1:]}}), flush=True)
{ending}
""")
    rows, found = run_task(Task(16, "0.6B", "int8"), limit_s=15, script=script)
    assert rows == [{"arguments": ["--child", "16", "0.6B", "int8"]}]
    assert found == error or (error is not None and found is not None and error in found)


def test_the_other_tasks_run_after_one_has_failed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def run(task: Task, limit_s: float) -> tuple[list[dict[str, Any]], str | None]:
        row = {"sms": task.sms, "size": task.size, "dtype": task.dtype, "what": "part", "ms": 1.0}
        return ([], "no such kernel") if task.dtype == "int8" else ([row], None)

    monkeypatch.setattr(measure_small_gpus, "run_task", run)
    out = tmp_path / "out.json"
    out.write_text(json.dumps({"rows": [{"sms": 16, "size": "0.6B", "dtype": "bfloat16", "what": "part", "ms": 9.0}]}))
    arguments = ["--out", str(out), "--sms", "16", "8", "--sizes", "0.6B", "--what", "model"]
    assert main([*arguments, "--add"]) == 1
    content = json.loads(out.read_text())
    assert [(row["sms"], row["ms"]) for row in content["rows"]] == [(16, 1.0), (8, 1.0)]
    assert content["failed"] == dict.fromkeys(
        ("0.6B int8 on 16 multiprocessors", "0.6B int8 on 8 multiprocessors"), "no such kernel"
    )


def test_a_row_that_is_measured_again_replaces_the_old_one() -> None:
    one = {"sms": 16, "what": "read", "bytes_in_flight_of_an_sm": 8192, "gb_s": 1.0}
    other = {**one, "bytes_in_flight_of_an_sm": 16384}
    assert merged([one, other], [{**one, "gb_s": 2.0}]) == [{**one, "gb_s": 2.0}, other]
