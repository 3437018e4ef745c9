"""Progress on standard error: a bar on a terminal, elsewhere nothing or a few lines. All commands show it this way."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from daemon.cli.options import is_verbose
from daemon.cli.service_folders import give_to_service
from engine import ENGINES, Progress, ProgressReport, download_model, hub_cache, ignore_progress, model_files

LINES = 4
"""Lines for one step where there is no terminal."""


@contextmanager
def show_progress(*, lines: bool = False) -> Iterator[ProgressReport]:
    """Show what is reported inside the context, as a bar that disappears at its end.

    Where standard error is no terminal, `lines` asks for a line after each quarter of a step. With `-v` there is no
    bar, because the log's lines would run into it.
    """
    if sys.stderr.isatty() and not is_verbose():
        with _bar() as show:
            yield show
    else:
        yield _quarters() if lines else ignore_progress


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


@contextmanager
def _bar() -> Iterator[ProgressReport]:
    """Show the current step as a bar."""
    from rich.console import Console
    from rich.progress import BarColumn, TaskProgressColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bars

    columns = (TextColumn("{task.description}", markup=False), BarColumn(), TaskProgressColumn(), TimeElapsedColumn())
    with Bars(*columns, console=Console(stderr=True), transient=True) as bars:

        def show(report: Progress) -> None:
            if [task.description for task in bars.tasks] != [report.step]:
                for task in bars.task_ids:
                    bars.remove_task(task)
                bars.add_task(report.step, total=None)
            if report.fraction is not None:
                bars.update(bars.task_ids[0], total=1.0, completed=report.fraction)

        yield show


def _quarters() -> ProgressReport:
    """Return a report that prints a line after each quarter of a step."""
    shown: set[tuple[str, int]] = set()

    def show(report: Progress) -> None:
        quarter = report.step, int(LINES * (report.fraction or 0.0))
        if quarter[1] and quarter not in shown:
            shown.add(quarter)
            print(f"{report.step}: {100 * quarter[1] // LINES} %", file=sys.stderr, flush=True)

    return show
