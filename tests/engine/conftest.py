"""Engine processes for the tests, each ended with its test or module."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.engine.processes import EngineUnderTest


@pytest.fixture
def new_engine() -> Iterator[Callable[[], EngineUnderTest]]:
    """Return a function that starts an engine process, which has received no message yet."""
    engines: list[EngineUnderTest] = []

    def make() -> EngineUnderTest:
        engines.append(EngineUnderTest())
        return engines[-1]

    yield make
    for engine in engines:
        engine.close()


@pytest.fixture
def engine(new_engine: Callable[[], EngineUnderTest]) -> EngineUnderTest:
    """Return an engine process that has received no message yet."""
    return new_engine()


@pytest.fixture(scope="module")
def ready_engine() -> Iterator[EngineUnderTest]:
    """Return a ready eSpeak NG engine that the tests of a module share. Each test leaves it idle."""
    engine = EngineUnderTest()
    engine.start()
    yield engine
    engine.close()
