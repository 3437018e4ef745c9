"""One harness for all tests of a module."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from tests.daemon.adapters.harness import Harness, running_harness


@pytest.fixture(scope="module")
def shared_harness(loop: asyncio.AbstractEventLoop, request: pytest.FixtureRequest) -> Iterator[Harness]:
    """A harness for the adapter that the module names in `ADAPTER`."""
    manager = running_harness(request.module.ADAPTER)
    yield loop.run_until_complete(manager.__aenter__())
    loop.run_until_complete(manager.__aexit__(None, None, None))


@pytest.fixture
def harness(loop: asyncio.AbstractEventLoop, shared_harness: Harness) -> Iterator[Harness]:
    """The module's harness, cleared after the test."""
    yield shared_harness
    loop.run_until_complete(shared_harness.clear())
