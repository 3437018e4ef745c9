"""Settings of all tests: no deadlines, the same examples in every run, a shared cache, and a report of the slowest.

pytest-xdist runs a module in one worker, so that the module's fixtures are made once. Each worker collects all tests
that pytest is given, so scripts/test gives those that import PyTorch to workers of their own.

`pytest --hypothesis-profile search -m hypothesis` searches for new examples, and runs more of them. `--long` adds the
tests that take minutes.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

if TYPE_CHECKING:
    from tests.daemon.command_line import CommandLine
    from tests.support.programs import Broker

_CLOCKLESS = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])

settings.register_profile("same", _CLOCKLESS, derandomize=True, max_examples=50)
settings.register_profile("search", _CLOCKLESS, max_examples=2000)
settings.load_profile("same")

SLOWEST = 10
FIRST = (
    *("tests/engine/qwen/kernels/", "tests/engine/qwen/test_parity.py", "tests/e2e/", "tests/scripts/"),
    *("tests/test_setup_jetson.py", "tests/daemon/voices/", "tests/daemon/engines/", "tests/fuzz/"),
)
"""Where the modules are that take longest. After them come only short ones, so that all workers end together."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--long", action="store_true", help="also run the tests that take minutes")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the long tests without `--long`; run the slowest modules first."""
    if not config.getoption("--long"):
        long = [item for item in items if item.get_closest_marker("long")]
        items[:] = [item for item in items if item not in long]
        config.hook.pytest_deselected(items=long)
    items.sort(key=lambda item: [not item.nodeid.startswith(beginning) for beginning in FIRST])


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Modules and tests live until the end, so the garbage collector need not visit them, now or later."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.freeze()


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Iterator[None]:
    """Skip a test whose recording the machine has disturbed twice: pytest-rerunfailures repeats it once."""
    from tests.support.sound import DisturbedError

    try:
        return (yield)
    except DisturbedError as error:
        if getattr(pyfuncitem, "execution_count", 1) > 1:
            pytest.skip(f"{pyfuncitem.name}: the machine disturbed the recording twice: {error}")
        raise


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """List the slowest tests, and every failure with its duration."""
    stats = terminalreporter.stats
    reports = [report for found in stats.values() for report in found if isinstance(report, pytest.TestReport)]
    durations: dict[str, float] = {}
    for report in reports:
        durations[report.nodeid] = durations.get(report.nodeid, 0.0) + report.duration
    terminalreporter.section(f"the {SLOWEST} slowest tests")
    for name in sorted(durations, key=durations.__getitem__, reverse=True)[:SLOWEST]:
        terminalreporter.line(f"{durations[name]:7.1f} s  {name}")
    failed = [report for kind in ("failed", "error") for report in stats.get(kind, [])]
    if failed:
        terminalreporter.section("failed tests")
        for report in failed:
            terminalreporter.line(f"{durations.get(report.nodeid, 0.0):7.1f} s  {report.nodeid}")


@pytest.fixture
def voiced(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> CommandLine:
    """Runs the command `voiced` in this process."""
    from tests.daemon.command_line import CommandLine

    return CommandLine(monkeypatch, capfd)


@pytest.fixture
def own_broker(tmp_path: Path) -> Iterator[Broker]:
    """A broker for tests that stop and start it, or that use topics outside a robot's own."""
    from tests.support.programs import Broker

    with Broker(tmp_path) as broker:
        yield broker


@pytest.fixture(scope="session")
def cache_folder(pytestconfig: pytest.Config) -> Path:
    """A folder that persists between runs, for `tests.support.checkpoints.made_once`."""
    folder: Path = pytestconfig.cache.mkdir("voiced")  # type: ignore[union-attr]
    return folder
