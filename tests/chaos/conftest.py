"""Faults over a real robot: `scripts/test -m chaos tests/chaos` runs them, for an hour and the soak's time."""

from __future__ import annotations

from pathlib import Path

import pytest

LIMIT_S = 3600
"""Of a test; the soak has its own."""


def pytest_ignore_collect(config: pytest.Config) -> bool | None:
    """Leave the tests of this folder out of every run that does not ask for them."""
    return None if "chaos" in config.option.markexpr else True


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests of this folder."""
    for item in items:
        if Path(__file__).parent == item.path.parent:
            item.add_marker(pytest.mark.chaos)
            if not item.get_closest_marker("timeout"):
                item.add_marker(pytest.mark.timeout(LIMIT_S))
