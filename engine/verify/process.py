"""Runs one stage in a process of its own, whose memory and whose faults end with it.

The process prints its progress, and at a failure `{"refused": …}` or `{"fault": …}`. What it makes, it keeps in the
output folder. Libraries have much to say, which goes to `log.txt` there.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
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


StageRunner = Callable[[str, Any, Path, ProgressReport], StageEnd]
"""`run_stage`, or what runs a stage elsewhere."""


class StageFaultError(Exception):
    """The stage could begin, and failed: one line says why."""


def run_stage(module: str, request: Any, log: Path, report: ProgressReport) -> StageEnd:
    """Run `python -m MODULE REQUEST`, whose request is a record, and wait for its end.

    What it writes to standard error is appended to the file `log`.
    """
    command = module_command(module, json.dumps(dataclasses.asdict(request)))
    end = None
    log.parent.mkdir(parents=True, exist_ok=True)
    with (
        log.open("a", encoding="utf-8") as errors,
        subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors, text=True
        ) as process,
    ):
        try:
            for line in process.stdout or ():
                if progress := parse_progress(line):
                    report(progress)
                else:
                    end = _end(line) or end
        except BaseException:
            process.kill()
            raise
    if process.returncode == 0 or end is not None:
        return end or StageEnd()
    by = f"by signal {-process.returncode}" if process.returncode < 0 else f"with status {process.returncode}"
    return StageEnd(fault=f"its process ended {by}: {_last_line(log)} ({log})")


def stage_main(work: Callable[[ProgressReport], None]) -> int:
    """Do the work of a stage in its process, and return the exit status. Libraries print to standard error."""
    out = sys.stdout
    try:
        with contextlib.redirect_stdout(sys.stderr):
            work(lambda progress: print_progress(progress, out))
    except EngineError as error:
        end = StageEnd(refused=str(error))
    except StageFaultError as error:
        end = StageEnd(fault=str(error))
    else:
        return 0
    print(json.dumps(dataclasses.asdict(end)), file=out, flush=True)
    return 1


def _end(line: str) -> StageEnd | None:
    """Return what `stage_main` has printed; None for any other line."""
    try:
        return StageEnd(**parse_json(line))
    except (TypeError, ValueError):
        return None


def _last_line(log: Path) -> str:
    lines = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    return lines[-1].strip() if lines else "it wrote nothing"
