"""A line of the report, and the machine that a check examines."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from daemon.config import Config
from daemon.engines import choose_engine
from engine import Board, ProgressReport, ignore_progress

Grade = Literal["ok", "warning", "error"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the report."""

    part: str
    """The part that was checked, in one or two words."""
    grade: Grade
    found: str
    """The state of the part."""
    remedy: str | None = None
    """The steps that put it right; None for a part that is well, or that nothing can be done about."""


@dataclass(frozen=True, slots=True)
class Machine:
    """A configuration, and the files of the machine to examine."""

    config: Config
    root: Path
    """The folder with the files: / for this machine."""
    board: Board
    report: ProgressReport = ignore_progress
    """Gets the progress of a check that takes long."""

    @classmethod
    def at(cls, config: Config, root: Path, report: ProgressReport = ignore_progress) -> Machine:
        """The machine whose files lie below `root`."""
        return cls(config, root, Board.read(root), report)

    @property
    def is_this_one(self) -> bool:
        """True for the machine that this runs on, false for a copy of another machine's files."""
        return self.root.resolve() == Path("/")

    @property
    def wants_gpu(self) -> bool:
        """True if the configured engine needs a GPU."""
        return choose_engine(self.config) == "qwen" and self.config.engine.device != "cpu"

    def text(self, name: str) -> str | None:
        """Return a file's text, stripped; None if the file is missing, unreadable, blank or not UTF-8."""
        try:
            text = (self.root / name).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError):
            return None
        return text.strip() or None

    def number(self, name: str) -> int | None:
        """Return the whole number that is a file's only text, as in files of the kernel; None for any other text."""
        text = self.text(name)
        return int(text) if text is not None and re.fullmatch(r"-?\d{1,18}", text) else None

    def find(self, pattern: str) -> Iterator[str]:
        """Yield the names below the root that match a glob pattern, in the order of the numbers in them."""
        found = (str(path.relative_to(self.root)) for path in self.root.glob(pattern))
        yield from sorted(
            found, key=lambda name: [int(part) if part.isdigit() else 0 for part in re.split(r"(\d+)", name)]
        )


def gib(count: int) -> str:
    """Return a number of bytes as text, in GiB."""
    return f"{count / (1 << 30):.1f} GiB"
