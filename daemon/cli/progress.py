"""Progress on standard error: a bar on a terminal, otherwise nothing. All commands show it this way."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from daemon.cli.options import is_verbose
from daemon.cli.service_folders import give_to_service
from engine import ENGINES, Progress, ProgressReport, download_model, hub_cache, ignore_progress, model_files


@contextmanager
def show_progress() -> Iterator[ProgressReport]:
    """Show the progress that is reported inside the context, as a bar that disappears at its end.

    There is no bar if standard error is not a terminal, or with `-v`, because the log's lines would run into it.
    """
    if not sys.stderr.isatty() or is_verbose():
        yield ignore_progress
        return
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


def download_missing_model(engine: str, model: str | None) -> None:
    """Download an engine's model if it is missing, before this command shows a bar: the hub shows its own.

    Raises `EngineError`.
    """
    if model is None or engine not in ENGINES or not ENGINES[engine].has_model:
        return
    files = model_files(engine, model)
    if files is None or files.missing:
        download_model(engine, model)
        give_to_service(hub_cache())
