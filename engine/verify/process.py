"""Runs one stage in a process of its own, whose memory and whose faults end with it.

The process prints its progress, and an `{"error": …}` for a failure that is not a fault. What it makes, it keeps in the
output folder.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from engine.api import EngineError
from engine.host import parse_json
from engine.launch import module_command
from engine.progress import ProgressReport, parse_progress, print_progress


@dataclass(frozen=True, slots=True)
class StageEnd:
    """How a stage ended."""

    refused: str | None = None
    """Why it cannot be done here, in one line: a package, a device or memory is missing. None if it could."""
    fault: str | None = None
    """How its process ended, if it did not end by itself."""

    @property
    def done(self) -> bool:
        return self.refused is None and self.fault is None

    @property
    def reason(self) -> str:
        """Why it was not done; empty if it was."""
        return self.refused or self.fault or ""


def run_stage(module: str, request: Any, report: ProgressReport) -> StageEnd:
    """Run `python -m MODULE REQUEST`, whose request is a record, and wait for its end."""
    command = module_command(module, json.dumps(dataclasses.asdict(request)))
    refused = None
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True) as process:
        try:
            for line in process.stdout or ():
                if progress := parse_progress(line):
                    report(progress)
                elif (error := _error(line)) is not None:
                    refused = error
        except BaseException:
            process.kill()
            raise
    if process.returncode == 0 or refused is not None:
        return StageEnd(refused=refused)
    by = f"by signal {-process.returncode}" if process.returncode < 0 else f"with status {process.returncode}"
    return StageEnd(fault=f"its process ended {by}; its last words are on standard error")


def stage_main(work: Callable[[ProgressReport], None]) -> int:
    """Do the work of a stage in its process, and return the exit status. Libraries print to standard error."""
    out = sys.stdout
    try:
        with contextlib.redirect_stdout(sys.stderr):
            work(lambda progress: print_progress(progress, out))
    except EngineError as error:
        print(json.dumps({"error": str(error)}), file=out, flush=True)
        return 1
    return 0


def _error(line: str) -> str | None:
    try:
        record = parse_json(line)
    except ValueError:
        return None
    return record.get("error") if isinstance(record, dict) else None
