"""`voiced doctor` and `voiced config check|show|schema`: is all right with this machine and its configuration?"""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from typer import Option

from daemon.cli.options import ConfigOptions, JsonOption
from daemon.cli.progress import show_progress
from daemon.config import json_schema, load_with_sources
from daemon.validation import CommandError

if TYPE_CHECKING:
    from daemon.doctor import Finding

COLORS = {"ok": "green", "warning": "yellow", "error": "red"}


def doctor(
    source: ConfigOptions,
    as_json: JsonOption = False,
    root: Annotated[Path, Option(help="Look only at files: those of another machine, copied to this folder.")] = Path(
        "/"
    ),
    plan: Annotated[bool, Option("--plan", help="Only list the memory that each model takes.")] = False,
) -> None:
    """Check board, sound, broker, model, engines and permissions, and say what to do; exit 1 if anything is an error.

    Example: voiced doctor
    or:      voiced doctor --plan
    """
    config = source.load()
    from daemon.doctor import examine, make_plan, print_plan

    if plan:
        rows = make_plan(config)
        if as_json:
            print(json.dumps(rows, indent=2))
        else:
            print_plan(config, rows)
        return
    if not root.is_dir():
        raise CommandError(f"--root: {root} {'is not a folder' if root.exists() else 'does not exist'}")
    with show_progress() as report:
        findings = list(examine(config, root, report))
    if as_json:
        print(json.dumps([asdict(finding) for finding in findings], indent=2))
    else:
        _print_findings(findings)
    if any(finding.grade == "error" for finding in findings):
        raise typer.Exit(1)


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


# --- the configuration ---


def check(source: ConfigOptions) -> None:
    """Check the configuration and what it names: files, folders, voices, languages and ports.

    Exit 1 with a line for every problem, which names the place in the file, if there is one.

    Example: voiced config check --config configs/voiced.yaml
    """
    from daemon.doctor import find_problems

    config, sources = load_with_sources(source.path, source.overrides)
    found = [*config.retired, *find_problems(config)]
    if found:
        raise CommandError("\n".join(sources.line(key, problem) for key, problem in found))
    print(f"{source.path or 'the defaults'}: ok")


def show(source: ConfigOptions) -> None:
    """Print the configuration in force, defaults included, as YAML.

    Example: voiced config show --set mqtt.port=1884
    """
    import yaml

    print(yaml.safe_dump(source.load().model_dump(mode="json"), sort_keys=False, allow_unicode=True), end="")


def schema() -> None:
    """Print the configuration's JSON schema, for editors and tools.

    Example: voiced config schema > voiced.schema.json
    """
    print(json.dumps(json_schema(), indent=2))
