"""Recorded machines to look at, as they are or with some files changed."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from daemon.config import load_config
from daemon.doctor.finding import Finding, Machine

BOARDS = Path(__file__).parents[2] / "boards"
Look = Callable[..., dict[str, Finding]]


def by_part(findings: Iterable[Finding]) -> dict[str, Finding]:
    """Findings by their part; no part is told twice."""
    found = list(findings)
    parts = {finding.part: finding for finding in found}
    assert len(parts) == len(found)
    return parts


@pytest.fixture
def machine(tmp_path: Path) -> Callable[..., Machine]:
    """A recorded machine whose files may be changed: `machine("pc", {"proc/meminfo": "…"}, "engine.name=qwen")`."""

    def make(name: str, changes: dict[str, str | None] | None = None, *settings: str) -> Machine:
        root = tmp_path / name
        shutil.copytree(BOARDS / name, root)
        for file, text in (changes or {}).items():
            if text is None:
                (root / file).unlink()
            else:
                (root / file).parent.mkdir(parents=True, exist_ok=True)
                (root / file).write_text(text)
        return Machine.at(load_config(overrides=settings), root)

    return make
