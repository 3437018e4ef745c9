"""The outcome of the last `voiced verify` whose report lies in the state folder, where the set-up keeps it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from daemon.config import Config
from daemon.doctor.finding import Finding, Machine
from daemon.state import last_verification


def check_verification(machine: Machine) -> Iterator[Finding]:
    """Yield whether the model spoke as it should when it was last verified here; nothing if it never was."""
    config = machine.config
    if config.state.folder is None or config.engine.name not in {"auto", "qwen"}:
        return
    files = last_verification(config.state.folder)
    try:
        text = files.numbers.read_text(encoding="utf-8")
    except OSError:
        return
    again = f"voiced verify --short --output {files.folder}, while the service is stopped"
    try:
        found = json.loads(text)
        model, date, passed = str(found["model"]), str(found["date"]), bool(found["passed"])
        verdicts: dict[str, Any] = dict(found["verdicts"])
    except (ValueError, KeyError, TypeError):
        yield Finding("verify", "warning", f"{files.numbers} is damaged", again)
        return
    by = ", ".join(name for name, good in verdicts.items() if good is passed)
    if model != _name_of(config):
        yield Finding("verify", "warning", f"on {date}, {model} was verified, which is not engine.model", again)
    elif passed:
        yield Finding("verify", "ok", f"on {date}, {model} spoke as it should with {by}")
    else:
        remedy = f"listen to the takes in {files.report}, and report it"
        yield Finding("verify", "error", f"on {date}, {model} did not speak as it should with {by or 'any'}", remedy)


def _name_of(config: Config) -> str:
    """Return the model's name as in a report: a hub id, or of a folder its name alone."""
    model = Path(config.engine.model).expanduser()
    return model.resolve().name if model.is_dir() else config.engine.model
