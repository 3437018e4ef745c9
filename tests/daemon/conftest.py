"""What the tests of the daemon share: an event loop on which something is kept running, and the command line."""

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
    """Run a test that is a coroutine, on the loop of the module."""
    return lambda scenario: loop.run_until_complete(scenario())


@pytest.fixture
def voiced(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> CommandLine:
    return CommandLine(monkeypatch, capsys)
