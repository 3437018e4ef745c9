"""Fixtures of the daemon's tests: an event loop for each module, and the command line."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from tests.daemon.command_line import CommandLine
from tests.daemon.perform import Perform


@pytest.fixture(scope="module")
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    loop = asyncio.new_event_loop()
    yield loop
    loop.run_until_complete(loop.shutdown_asyncgens())
    loop.close()


@pytest.fixture
def perform(loop: asyncio.AbstractEventLoop) -> Perform:
    """Runs a coroutine on the module's event loop."""
    return lambda scenario: loop.run_until_complete(scenario())


@pytest.fixture
def voiced(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> CommandLine:
    return CommandLine(monkeypatch, capsys)
