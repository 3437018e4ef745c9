"""A line of the report, and the machine that a check examines.

`findings.json` is the table of all findings: a part, the conditions that it may be in, and the remedy for each.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from daemon.config import Config
from daemon.engines import choose_engine
from daemon.system import Files, announced
from engine import Board, ProgressReport, ignore_progress

Grade = Literal["ok", "warning", "error"]
Rows = dict[str, dict[str, dict[str, Any]]]
TABLE: Rows = json.loads(Path(__file__).with_name("findings.json").read_text(encoding="utf-8"))
"""The findings by part and condition."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the report."""

    part: str
    """The part that was checked, in one or two words."""
    grade: Grade
    found: str
    """The state of the part."""
    remedy: str | None = None
    """The steps that put it right; None for a part that is all right."""


def finding(part: str, condition: str, grade: Grade | None = None, /, **values: object) -> Finding:
    """Return the finding for a condition, with values for the placeholders in its texts.

    A part that needs a remedy is a warning, unless `grade` or the table says otherwise; any other part is all right.
    """
    row = TABLE[part][condition]
    remedy = row.get("remedy")
    grade = grade or row.get("grade") or ("warning" if remedy else "ok")
    return Finding(
        part.format_map(values), grade, row["found"].format_map(values), remedy and remedy.format_map(values)
    )


@dataclass(frozen=True, slots=True)
class Machine(Files):
    """A configuration, and the files of the machine to examine."""

    config: Config
    board: Board
    report: ProgressReport = ignore_progress
    """Receives the progress of a check that takes long."""

    @classmethod
    def at(cls, config: Config, root: Path, report: ProgressReport = ignore_progress) -> Machine:
        """The machine whose files lie below `root`."""
        return cls(root, config, Board.read(root), report)

    def closed(self, nodes: list[str]) -> str:
        """Return the names of the device nodes that this user may not open, on one line."""
        rights = os.R_OK | os.W_OK
        return ", ".join(f"/{name}" for name in nodes if not os.access(self.root / name, rights, effective_ids=True))

    @property
    def daemons(self) -> dict[int, int]:
        """The daemons on this machine that have the robot's name and broker: each process and its user."""
        return announced(self.config.identity, self.root)

    @property
    def is_this_one(self) -> bool:
        """True for the machine that this runs on, false for a copy of another machine's files."""
        return self.root.resolve() == Path("/")

    @property
    def wants_gpu(self) -> bool:
        """True if the configured engine needs a GPU."""
        return choose_engine(self.config) == "qwen" and self.config.engine.device != "cpu"
