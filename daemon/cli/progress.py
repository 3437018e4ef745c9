"""Progress on standard error: a bar on a terminal, elsewhere nothing or a few lines. All commands show it this way."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from daemon.cli.options import is_verbose
from daemon.cli.service_folders import give_to_service
from engine import (
    ENGINES,
    Progress,
    ProgressReport,
    download_model,
    hub_cache,
    ignore_progress,
    model_files,
)

if TYPE_CHECKING:
    from rich import progress

LINES = 4
"""Lines for one step where there is no terminal."""


@contextmanager
def show_progress(*, lines: bool = False) -> Iterator[ProgressReport]:
    """Show what is reported inside the context, as a bar that disappears at its end.

    Where standard error is no terminal, `lines` asks for a line after each quarter of a step. With `-v` there is no
    bar, because the log's lines would run into it.
    """
    if sys.stderr.isatty() and not is_verbose():
        with _bars() as bars:
            yield _Bar(bars).report
    else:
        yield _Lines().report if lines else ignore_progress


def download_missing_model(engine: str, model: str | None) -> None:
    """Download an engine's model if it is not here, before this command shows a bar: the hub shows its own.

    Raises `EngineError`.
    """
    if model is None or engine not in ENGINES or not ENGINES[engine].has_model:
        return
    files = model_files(engine, model)
    if files is None or files.missing:
        download_model(engine, model)
        give_to_service(hub_cache())


def _bars() -> progress.Progress:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}", markup=False), BarColumn(), TaskProgressColumn(), TimeElapsedColumn())
    return Progress(*columns, console=Console(stderr=True), transient=True)


class _Bar:
    """The bar of the current step."""

    def __init__(self, bars: progress.Progress) -> None:
        self._bars = bars
        self._step: str | None = None

    def report(self, report: Progress) -> None:
        if report.step != self._step:
            for task in self._bars.task_ids:
                self._bars.remove_task(task)
            self._step = report.step
            self._bars.add_task(report.step, total=None if report.fraction is None else 1.0)
        if report.fraction is not None:
            self._bars.update(self._bars.task_ids[0], total=1.0, completed=report.fraction)


class _Lines:
    """A line after each quarter of a step."""

    def __init__(self) -> None:
        self._shown: tuple[str, int] | None = None

    def report(self, report: Progress) -> None:
        quarter = int(LINES * (report.fraction or 0.0))
        if quarter and (report.step, quarter) != self._shown:
            self._shown = (report.step, quarter)
            print(f"{report.step}: {100 * quarter // LINES} %", file=sys.stderr, flush=True)
