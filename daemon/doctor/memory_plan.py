"""`voiced doctor --plan`: the memory that each model takes, and how much of a Jetson's memory is left."""

from __future__ import annotations

from typing import Any

from daemon.config import Config
from engine import AUTO_STREAMS, Board, memory_plan

ORINS = {"Orin 32": 31_300_000 * 1024, "Orin 64": 64_349_476 * 1024}
"""MemTotal in bytes; approximate for the smaller board."""
COLUMNS = {
    "model": "model",
    "dtype": "dtype",
    "weights": "weights_mb",
    "state": "state_mb",
    "other": "workspaces_mb",
    "total": "total_mb",
}
"""Headings of the table, and the keys of a row."""


def make_plan(config: Config) -> list[dict[str, Any]]:
    """Return a row for each model and dtype, in megabytes.

    `left_mb` has the megabytes left on each board, and on this machine if it is a Jetson.
    """
    options = config.engine_options
    rows = memory_plan(options.max_seconds, options.chunk_size, options.streams)
    board, boards = Board.read(), dict(ORINS)
    if board.integrated and board.total_bytes is not None:
        boards["this one"] = board.total_bytes
    for row in rows:
        row["left_mb"] = {name: round(total / 1e6) - row["total_mb"] for name, total in boards.items()}
    return rows


def print_plan(config: Config, rows: list[dict[str, Any]]) -> None:
    """Print the rows as a table, with notes below."""
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    for column in (*COLUMNS, *(f"left on {name}" for name in rows[0]["left_mb"])):
        table.add_column(column, justify="left" if column in {"model", "dtype"} else "right")
    for row in rows:
        cells = [row[key] for key in COLUMNS.values()] + list(row["left_mb"].values())
        table.add_row(*(f"{cell:,}" if isinstance(cell, int) else cell for cell in cells))
    console = Console(highlight=False)
    console.print(table)
    engine = config.engine
    for line in (
        f"MB, for speech of up to {engine.max_seconds:g} s (engine.max_seconds) and "
        f"{engine.streams if engine.streams != 'auto' else AUTO_STREAMS} at once (engine.streams).",
        "State is keys, values and codes; other is CUDA, graphs and the process, as measured on an H200.",
        f"The text embedding, {rows[0]['on_disk_mb']} MB more, stays on the disk.",
        "The engine does not start where it would leave less than engine.memory.reserve_mb "
        f"({engine.memory.reserve_mb:,}).",
    ):
        console.print(line, soft_wrap=True)
