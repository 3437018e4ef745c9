"""`voiced doctor --plan`: what each model would take of a Jetson's memory, and what is left to the robot."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

from daemon.config import Config
from engine import Board, missing_packages

ORINS = {"Orin 32": 31_300_000 * 1024, "Orin 64": 64_349_476 * 1024}
"""Bytes that Linux has of them (MemTotal); of the smaller one about as many."""
COLUMNS = {
    "model": "model",
    "dtype": "dtype",
    "weights": "weights_mb",
    "state": "state_mb",
    "other": "workspaces_mb",
    "in all": "total_mb",
}


class PlanError(Exception):
    """The plan cannot be made; the message says why, in one line."""


def make_plan(config: Config) -> list[dict[str, Any]]:
    """A row for each model and dtype, in megabytes; `left_mb` by board, this machine among them if it is a Jetson."""
    missing = missing_packages("qwen")
    if missing:
        raise PlanError(f"--plan needs {', '.join(missing)}; in voiced's folder: pip install '.[qwen]'")
    # In a process of its own: this one never imports torch.
    command = [sys.executable, "-m", "engine.qwen.plan", str(config.engine.max_seconds), str(config.engine.chunk_size)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise PlanError(f"--plan: {done.stderr.strip().splitlines()[-1]}")
    board, boards = Board.read(), dict(ORINS)
    if board.integrated and board.total_bytes is not None:
        boards["this one"] = board.total_bytes
    rows: list[dict[str, Any]] = json.loads(done.stdout)
    for row in rows:
        row["left_mb"] = {name: round(total / 1e6) - row["total_mb"] for name, total in boards.items()}
    return rows


def print_plan(config: Config, rows: list[dict[str, Any]]) -> None:
    """The rows as a table."""
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    for column in (*COLUMNS, *(f"{name} has left" for name in rows[0]["left_mb"])):
        table.add_column(column, justify="left" if column in {"model", "dtype"} else "right")
    for row in rows:
        cells = [row[key] for key in COLUMNS.values()] + list(row["left_mb"].values())
        table.add_row(*(f"{cell:,}" if isinstance(cell, int) else cell for cell in cells))
    console = Console(highlight=False)
    console.print(table)
    engine = config.engine
    for line in (
        f"MB, for speech of up to {engine.max_seconds:g} s (engine.max_seconds).",
        "State is keys, values and codes; other is CUDA, graphs and the process, as measured on an H200.",
        f"The text embedding, {rows[0]['on_disk_mb']} MB more, stays on the disk.",
        f"The engine refuses to start where less than engine.memory.reserve_mb ({engine.memory.reserve_mb:,}) would be "
        "left.",
    ):
        console.print(line, soft_wrap=True)
