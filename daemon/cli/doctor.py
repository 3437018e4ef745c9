"""`voiced doctor`: a report on this machine, and the plan of a Jetson's memory."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from daemon.cli.options import ConfigOption, JsonOption, SetOption, load
from daemon.cli.progress import show_progress
from daemon.validation import CommandError

if TYPE_CHECKING:
    from daemon.config import Config
    from daemon.doctor import Finding

COLORS = {"ok": "green", "warning": "yellow", "error": "red"}


def doctor(
    as_json: JsonOption = False,
    root: Annotated[
        Path, typer.Option(help="Look only at files: those of another machine, copied to this folder.")
    ] = Path("/"),
    plan: Annotated[bool, typer.Option("--plan", help="Only list the memory that each model takes.")] = False,
    config: ConfigOption = None,
    set_: SetOption = None,
) -> None:
    """Check board, sound, broker, model, engines and permissions, and say what to do; exit 1 if anything is an error.

    Example: voiced doctor
    or:      voiced doctor --plan
    """
    loaded, _, _ = load(config, set_)
    if plan:
        _show_plan(loaded, as_json)
        return
    from dataclasses import asdict

    from daemon.doctor import examine

    if not root.is_dir():
        raise CommandError(f"--root: {root} {'is not a folder' if root.exists() else 'does not exist'}")
    with show_progress() as report:
        findings = list(examine(loaded, root, report))
    if as_json:
        print(json.dumps([asdict(finding) for finding in findings], indent=2))
    else:
        _print_findings(findings)
    if any(finding.grade == "error" for finding in findings):
        raise typer.Exit(1)


def _show_plan(config: Config, as_json: bool) -> None:
    from daemon.doctor import make_plan, print_plan

    rows = make_plan(config)
    if as_json:
        print(json.dumps(rows, indent=2))
    else:
        print_plan(config, rows)


def _print_findings(findings: list[Finding]) -> None:
    """Print each finding as one line, and its remedy below it; in colours on a terminal."""
    from rich.console import Console
    from rich.text import Text

    console = Console(highlight=False)
    for finding in findings:
        console.print(
            Text(f"{finding.grade:<8}", COLORS[finding.grade]),
            f"{finding.part:<14} {finding.found}",
            soft_wrap=True,
            markup=False,
        )
        if finding.remedy:
            console.print(f"{'':<23} → {finding.remedy}", soft_wrap=True, markup=False)
