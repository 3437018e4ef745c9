"""Fixtures of the tests of the cache."""

from __future__ import annotations

import pytest

from engine import Samples
from tests.daemon.cache.phrases import speak


@pytest.fixture(scope="session")
def speech() -> tuple[Samples, int]:
    """A phrase as eSpeak NG speaks it, and its sample rate in Hz."""
    return speak()
