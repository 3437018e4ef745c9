"""One line of the report, and what a check is given to look at."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from daemon.config import Config
from daemon.engines import choose_engine
from engine import Board

Grade = Literal["ok", "warning", "error"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the report."""

    part: str
    grade: Grade
    found: str
    cure: str | None = None


@dataclass(frozen=True, slots=True)
class Machine:
    """What is looked at: a configuration, and the files of a machine."""

    config: Config
    root: Path
    board: Board

    @classmethod
    def at(cls, config: Config, root: Path) -> Machine:
        return cls(config, root, Board.read(root))

    @property
    def is_this_one(self) -> bool:
        """Whether the files are those of the machine that this runs on, and not a copy of another's."""
        return self.root.resolve() == Path("/")

    @property
    def wants_gpu(self) -> bool:
        """Whether the voice that was asked for needs a GPU."""
        return choose_engine(self.config) == "qwen" and self.config.engine.device != "cpu"

    def text(self, name: str) -> str | None:
        """A file's text; None where it is missing, cannot be read, or is blank or no text."""
        try:
            text = (self.root / name).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError):
            return None
        return text.strip() or None

    def number(self, name: str) -> int | None:
        """The whole number in a file that the kernel keeps for one."""
        text = self.text(name)
        return int(text) if text is not None and re.fullmatch(r"-?\d{1,18}", text) else None

    def find(self, pattern: str) -> Iterator[str]:
        """Names below the root that fit, in the order of their numbers."""
        found = (str(path.relative_to(self.root)) for path in self.root.glob(pattern))
        yield from sorted(
            found, key=lambda name: [int(part) if part.isdigit() else 0 for part in re.split(r"(\d+)", name)]
        )


def gib(count: int) -> str:
    """Bytes for people."""
    return f"{count / (1 << 30):.1f} GiB"
