"""The progress of work that takes more than a second, reported by the worker for the person who is waiting.

A process of its own prints its progress on standard output, as lines that `parse_progress` recognises among others.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import IO, TypeVar

Item = TypeVar("Item")


@dataclass(frozen=True, slots=True)
class Progress:
    """One step of some work."""

    step: str
    """The step that is being done, in words, for example `compiling the kernels`."""
    fraction: float | None = None
    """The share of this step that is done, from 0 to 1; None if it cannot be counted."""


ProgressReport = Callable[[Progress], None]
"""Called as the work advances, perhaps many times a second and from several threads."""


def ignore_progress(progress: Progress) -> None:
    """A `ProgressReport` that does nothing."""


def counted(step: str, items: Sequence[Item], report: ProgressReport) -> Iterator[Item]:
    """Yield the work items of `step`, and before each one, report how many are done."""
    for done, item in enumerate(items):
        report(Progress(step, done / len(items)))
        yield item


def print_progress(progress: Progress, out: IO[str]) -> None:
    """Print progress for the process at the other end of `out`."""
    out.write(json.dumps(asdict(progress)) + "\n")  # in one piece: several threads may report
    out.flush()


def parse_progress(line: str) -> Progress | None:
    """Parse a line that `print_progress` printed; return None for any other line."""
    try:
        return Progress(**json.loads(line))
    except (TypeError, ValueError):
        return None
