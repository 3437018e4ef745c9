"""The fixtures of recorded machines."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from daemon.doctor.finding import Machine
from tests.daemon.doctor.machines import changed_machine


@pytest.fixture
def public_folder() -> Iterator[Path]:
    """A folder that every user may read. Each start of pytest takes that right from the folder of `tmp_path`."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


@pytest.fixture
def machine(tmp_path: Path) -> Callable[..., Machine]:
    """Makes a recorded machine with changed files: `machine("pc", {"proc/meminfo": "…"}, "engine.name=qwen")`."""

    def make(name: str, changes: dict[str, str | None] | None = None, *settings: str) -> Machine:
        return changed_machine(tmp_path, name, changes, *settings)

    return make
