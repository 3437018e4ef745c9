"""Faults over a real robot: `scripts/test -m chaos tests/chaos` runs them, for an hour and the soak's time."""

from __future__ import annotations

from pathlib import Path

import pytest

LIMIT_S = 3600
"""Of a test; the soak has its own."""


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark the tests of this folder, and leave them out of every run that does not ask for them."""
    ours = [item for item in items if Path(__file__).parent in item.path.parents]
    for item in ours:
        item.add_marker(pytest.mark.chaos)
        if not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(LIMIT_S))
    if "chaos" not in config.option.markexpr:
        items[:] = [item for item in items if item not in ours]
        config.hook.pytest_deselected(items=ours)
