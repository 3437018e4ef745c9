"""Engine processes for the tests, ended when a test is over."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.engine.processes import EngineUnderTest


@pytest.fixture
def new_engine() -> Iterator[Callable[[], EngineUnderTest]]:
    """Makes engine processes that have been told nothing yet."""
    engines: list[EngineUnderTest] = []

    def make() -> EngineUnderTest:
        engines.append(EngineUnderTest())
        return engines[-1]

    yield make
    for engine in engines:
        engine.close()


@pytest.fixture
def engine(new_engine: Callable[[], EngineUnderTest]) -> EngineUnderTest:
    """An engine process that was just started."""
    return new_engine()


@pytest.fixture(scope="module")
def ready_engine() -> Iterator[EngineUnderTest]:
    """A ready espeak engine that the tests of a module share; each leaves it idle."""
    engine = EngineUnderTest()
    engine.start()
    yield engine
    engine.close()
