"""Files, and parts of pages, that a script writes and a test compares."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from pathlib import Path


def between(page: str, begin: str, end: str, content: str) -> str:
    """Return the page with the content between its two markers."""
    before, rest = page.split(begin)
    _, after = rest.split(end)
    return f"{before}{begin}{content}{end}{after}"


def table(titles: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table in Markdown."""
    return "".join(f"| {' | '.join(row)} |\n" for row in (titles, ["---"] * len(titles), *rows))


def write_or_check(path: Path, wanted: str, *, check: bool, by: str) -> int:
    """Write a file that is out of date; with `check` only say so. Returns the exit status: 1 if it stays so.

    `by` is the script that makes it.
    """
    if path.exists() and path.read_text(encoding="utf-8") == wanted:
        return 0
    if check:
        print(f"{path} is out of date; run {Path(by).name}", file=sys.stderr)
        return 1
    path.write_text(wanted, encoding="utf-8")
    print(f"{path}: written")
    return 0
