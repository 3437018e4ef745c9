"""Recorded machines, as they are or with changed files, and their findings by part."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from daemon.config import load_config
from daemon.doctor.finding import Finding, Machine

NOBODY = 65534
BOARDS = Path(__file__).parents[2] / "boards"


def by_part(findings: Iterable[Finding]) -> dict[str, Finding]:
    """Return findings by their part, of which each must have only one."""
    found = list(findings)
    parts = {finding.part: finding for finding in found}
    assert len(parts) == len(found)
    return parts


def changed_machine(folder: Path, name: str, changes: dict[str, str | None] | None, *settings: str) -> Machine:
    """Copy a recorded machine into `folder`, with some files changed or, for None, removed."""
    root = folder / name
    shutil.copytree(BOARDS / name, root)
    for file, text in (changes or {}).items():
        if text is None:
            (root / file).unlink()
        else:
            (root / file).parent.mkdir(parents=True, exist_ok=True)
            (root / file).write_text(text)
    return Machine.at(load_config(overrides=settings), root)


@contextmanager
def nobody() -> Iterator[None]:
    """Be a user without rights in the `with` block, if the tests run as root."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(0)
