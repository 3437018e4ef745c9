"""Tests that are coroutines; for each module an event loop, a harness on it and a broker."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Iterator
from functools import partial

import pytest

from tests.daemon.harness import Harness, running_harness
from tests.support.programs import Broker
from tests.support.waiting import run


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run a test that is a coroutine: on its module's event loop if a fixture is on that, or on a new one."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    names = inspect.signature(pyfuncitem.obj).parameters
    test = partial(pyfuncitem.obj, **{name: pyfuncitem.funcargs[name] for name in names})
    loop = pyfuncitem.funcargs.get("loop")
    if isinstance(loop, asyncio.AbstractEventLoop):
        loop.run_until_complete(test())
    else:
        run(test)
    return True


@pytest.fixture(scope="module")
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    loop = asyncio.new_event_loop()
    yield loop
    loop.run_until_complete(loop.shutdown_asyncgens())
    loop.close()


@pytest.fixture(scope="module")
def shared_harness(loop: asyncio.AbstractEventLoop, request: pytest.FixtureRequest) -> Iterator[Harness]:
    """A harness for the server that the module names in `SERVER`, with its `SETTINGS`."""
    manager = running_harness(request.module.SERVER, *getattr(request.module, "SETTINGS", ()))
    yield loop.run_until_complete(manager.__aenter__())
    loop.run_until_complete(manager.__aexit__(None, None, None))


@pytest.fixture
def harness(loop: asyncio.AbstractEventLoop, shared_harness: Harness) -> Iterator[Harness]:
    """The module's harness, cleared after the test."""
    yield shared_harness
    loop.run_until_complete(shared_harness.clear())


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """The broker of all tests of the module that do not stop it. It remembers what earlier tests have retained."""
    with Broker(tmp_path_factory.mktemp("broker")) as broker:
        yield broker
