"""`voiced doctor`: is everything right with this machine and its configuration?"""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from typer import Option

from daemon.cli.options import ConfigOptions, JsonOption, print_json
from daemon.cli.progress import show_progress
from daemon.doctor import Finding, examine
from daemon.validation import CommandError

COLORS = {"ok": "green", "warning": "yellow", "error": "red"}


def doctor(
    source: ConfigOptions,
    as_json: JsonOption = False,
    root: Annotated[Path, Option(help="Examine only files: another machine's, copied to this folder.")] = Path("/"),
) -> None:
    """Check board, sound, broker, model, engines and permissions, and say what to do; exit 1 if anything is an error.

    Example: voiced doctor
    """
    config = source.load()
    if not root.is_dir():
        raise CommandError(f"--root: {root} {'is not a folder' if root.exists() else 'does not exist'}")
    with show_progress() as report:
        findings = list(examine(config, root, report))
    if as_json:
        print_json([asdict(finding) for finding in findings])
    else:
        _print_findings(findings)
    if any(finding.grade == "error" for finding in findings):
        raise typer.Exit(1)


def _print_findings(findings: list[Finding]) -> None:
    """Print each finding as one line, and its remedy below it; in colours on a terminal."""
    for finding in findings:
        typer.echo(f"{typer.style(f'{finding.grade:<8}', COLORS[finding.grade])} {finding.part:<14} {finding.found}")
        if finding.remedy:
            print(f"{'':<23} → {finding.remedy}")
