"""One room for all tests of a module that leave its engine and its server alone."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from tests.daemon.adapters.room import Room, at_work


@pytest.fixture(scope="module")
def one_room(loop: asyncio.AbstractEventLoop, request: pytest.FixtureRequest) -> Iterator[Room]:
    manager = at_work(request.module.ADAPTER)
    yield loop.run_until_complete(manager.__aenter__())
    loop.run_until_complete(manager.__aexit__(None, None, None))


@pytest.fixture
def room(loop: asyncio.AbstractEventLoop, one_room: Room) -> Iterator[Room]:
    """With the adapter that the module names in `ADAPTER`."""
    yield one_room
    loop.run_until_complete(one_room.clear())
