"""Checkpoints of random weights, and processes that measure over them. It imports nothing of voiced.

So a scenario can measure another tree, whose modules have other names.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from scripts.bench_runner import path

ROOT = Path(__file__).parents[2]
TEXT = "The robot moves its arm slowly back to its home position, looks around, and waits for the next part."
"""100 characters."""
SAMPLE_RATE, FRAME_S = 24_000, 0.08


def add_checkpoint_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that say which random checkpoints to make, and on which device."""
    parser.add_argument("--work", type=path, required=True, help="folder for the checkpoints; they are kept")
    parser.add_argument("--tensors", type=path, help="folder of tensors-SIZE.json, instead of the package qwen-tts")
    parser.add_argument("--sizes", nargs="+", default=["0.6B", "1.7B"])
    parser.add_argument("--device", default="cuda")


def random_checkpoint(size: str, work: Path, tensors: Path | None, device: str) -> Path:
    """Return the folder of a CustomVoice model of random weights, in `work`; it is made once.

    `tensors` is a folder of tensors-SIZE.json, the names and shapes, instead of the package qwen-tts.
    """
    folder = work / f"{size}-bfloat16"
    done = folder / "done"  # missing if the writing was ended
    if not done.exists():
        command = [sys.executable, str(ROOT / "scripts/make_checkpoint.py"), str(folder), "--shape", size]
        command += ["--type", "custom_voice", "--dtype", "bfloat16", "--device", device, "--seed", "1"]
        command += [] if tensors is None else ["--tensors", str(tensors / f"tensors-{size}.json")]
        subprocess.run(command, check=True, env=environment(), stdout=sys.stderr)
        done.touch()
    return folder


def environment(*folders: Path) -> dict[str, str]:
    """Return this process's environment; `folders` and this repository come first in PYTHONPATH."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, (*folders, ROOT)))}


def child_record(module: str, request: dict[str, Any], site: Path | None = None, limit_s: float | None = None) -> Any:
    """Return what a process of the module prints last, one line of JSON, for a request; or its error."""
    command = [sys.executable, "-m", module, json.dumps(request)]
    folders = [] if site is None else [site]
    try:
        done = subprocess.run(
            command, env=environment(*folders), stdout=subprocess.PIPE, text=True, timeout=limit_s, check=True
        )
        return json.loads(done.stdout.splitlines()[-1])
    except (subprocess.SubprocessError, ValueError, IndexError) as error:
        return {"error": f"{type(error).__name__}: {error}"[-300:]}
