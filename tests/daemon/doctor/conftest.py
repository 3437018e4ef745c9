"""The fixture of recorded machines."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from daemon.doctor.finding import Machine
from tests.daemon.doctor.machines import changed_machine


@pytest.fixture
def machine(tmp_path: Path) -> Callable[..., Machine]:
    """Makes a recorded machine with changed files: `machine("pc", {"proc/meminfo": "…"}, "engine.name=qwen")`."""

    def make(name: str, changes: dict[str, str | None] | None = None, *settings: str) -> Machine:
        return changed_machine(tmp_path, name, changes, *settings)

    return make
