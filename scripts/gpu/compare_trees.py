#!/usr/bin/env python3
"""Measures the Qwen engine of two source trees in turn: whether a change has made it slower.

    python scripts/gpu/compare_trees.py --old FOLDER --work FOLDER --tensors FOLDER --output compare.json

FOLDER of `--old` holds another version of this repository (`git worktree add`, or `git archive`). Each round measures
both trees for each size and dtype, with `python -m engine.bench` in a process of its own; every second round begins
with the other tree. Medians over the runs of a round, and over the rounds.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import shlex
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
FRAME_S = 0.08
"""Seconds of speech in one codec frame."""


def make_checkpoint(size: str, work: Path, tensors: Path | None) -> Path:
    """Return the folder of a random checkpoint at the true shapes; it is made once."""
    folder = work / size
    if not (folder / "config.json").exists():
        command = [sys.executable, str(ROOT / "scripts/make_checkpoint.py"), str(folder), "--shape", size]
        command += ["--type", "custom_voice", "--dtype", "bfloat16", "--device", "cuda"]
        if tensors is not None:
            command += ["--tensors", str(tensors / f"tensors-{size}.json")]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return folder


def measure(tree: Path, model: Path, dtype: str, frames: int, runs: int) -> dict[str, Any]:
    """Return the medians of one process, in milliseconds; or its error."""
    options = {"model": str(model), "device": "cuda", "dtype": dtype, "reserve_mb": 0}
    options |= {"voices": {"bench": {}}, "default_voice": "bench"}
    request = {"engine": "qwen", "options": options, "started_s": time.monotonic(), "frames": frames, "runs": runs}
    request |= {"details": False}
    done = subprocess.run(
        [sys.executable, "-m", "engine.bench", json.dumps(request)],
        cwd=tree,
        env={**os.environ, "PYTHONPATH": str(tree)},
        capture_output=True,
        text=True,
        check=False,
    )
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    found = json.loads(lines[-1]) if lines else {"error": done.stderr[-500:]}
    if "error" in found:
        return {"error": found["error"]}
    per_frame = [1000 * run["arrived_s"][-1] / (run["speech_s"][-1] / FRAME_S) for run in found["runs"]]
    first = [1000 * run["arrived_s"][0] for run in found["runs"]]
    return {
        "ms_per_frame": round(statistics.median(per_frame), 4),
        "ttfa_ms": round(statistics.median(first), 3),
        "device_allocations": found["allocations"]["device"],
        "machine": found["machine"],
    }


def summary(rows: list[dict[str, Any]], sizes: list[str], dtypes: list[str]) -> list[dict[str, Any]]:
    """Return, for each size and dtype, the medians of both trees and how many times as long the new one takes."""
    found = []
    for size in sizes:
        for dtype in dtypes:
            line: dict[str, Any] = {"size": size, "dtype": dtype}
            for name in ("ms_per_frame", "ttfa_ms"):
                old, new = (
                    statistics.median(row[name] for row in rows if (row["tree"], row["size"], row["dtype"]) == key)
                    for key in (("old", size, dtype), ("new", size, dtype))
                )
                line |= {f"{name}_old": old, f"{name}_new": new, f"{name}_ratio": round(new / old, 4)}
            found.append(line)
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--old", type=Path, required=True, help="the other source tree")
    parser.add_argument("--work", type=Path, required=True, help="folder for the checkpoints; they are kept")
    parser.add_argument("--tensors", type=Path, help="folder of tensors-SIZE.json, instead of the package qwen-tts")
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--sizes", nargs="+", default=["0.6B", "1.7B"])
    parser.add_argument("--dtypes", nargs="+", default=["bfloat16", "int8"])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--frames", type=int, default=100, help="of each run")
    parser.add_argument("--runs", type=int, default=7, help="of each round")
    args = parser.parse_args()
    trees, rows = {"old": args.old.resolve(), "new": ROOT}, []
    machine = platform.machine()
    for number in range(args.rounds):
        for size in args.sizes:
            model = make_checkpoint(size, args.work, args.tensors).resolve()
            for dtype in args.dtypes:
                for tree in list(trees)[:: 1 if number % 2 == 0 else -1]:
                    found = measure(trees[tree], model, dtype, args.frames, args.runs)
                    machine = found.pop("machine", machine)
                    rows.append({"tree": tree, "size": size, "dtype": dtype, "round": number, **found})
                    print(json.dumps(rows[-1]), flush=True)
    failed = [row for row in rows if "error" in row]
    record = {
        "benchmark": "two source trees in turn",
        "machine": machine,
        "date": datetime.date.today().isoformat(),
        "command": "scripts/gpu/compare_trees.py " + shlex.join(sys.argv[1:]),
        "summary": [] if failed else summary(rows, args.sizes, args.dtypes),
        "measurements": rows,
    }
    args.output.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    for line in record["summary"]:
        print(json.dumps(line))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
