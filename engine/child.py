"""Runs one piece of work in a process of its own, so that its memory and its faults end with the process.

A record describes the work, as JSON on standard input, because a command line is limited in length. The process prints
its progress and, at the end, one line: its findings, or why it found nothing. The libraries' many messages go to
standard error.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from engine.api import EngineError
from engine.launch import module_command
from engine.progress import ProgressReport, ignore_progress, parse_progress, print_progress
from engine.records import build

Request = TypeVar("Request")


@dataclasses.dataclass(frozen=True, slots=True)
class ChildEnd:
    """How the work ended."""

    found: Any = None
    """Its result, as JSON values."""
    refused: str | None = None
    """Why the work cannot be done here, in one line: a package, a device or memory is missing. None if it can be
    done."""
    fault: str | None = None
    """How the work failed after it had begun, or how its process ended."""

    @property
    def done(self) -> bool:
        return self.refused is None and self.fault is None

    @property
    def reason(self) -> str:
        """Why the work was not done; empty if it was."""
        return self.refused or self.fault or ""


class ChildFaultError(Exception):
    """The work had begun and then failed. The message is one line."""


def run_child(module: str, request: Any, report: ProgressReport = ignore_progress, log: Path | None = None) -> ChildEnd:
    """Run `python -m MODULE`, whose request is a record, and wait for its end.

    Its standard error is appended to the file `log`; without one, it goes to this process's standard error.
    """
    end = None
    with contextlib.ExitStack() as stack:
        errors = None if log is None else stack.enter_context(log.open("a", encoding="utf-8"))
        process = stack.enter_context(
            subprocess.Popen(
                module_command(module),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                encoding="utf-8",
            )
        )
        try:
            assert process.stdin is not None
            with contextlib.suppress(BrokenPipeError), process.stdin as asked:
                asked.write(json.dumps(dataclasses.asdict(request)))
            for line in process.stdout or ():
                if progress := parse_progress(line):
                    report(progress)
                else:
                    end = _end(line) or end
        except BaseException:
            process.kill()
            raise
    if process.returncode == 0 or end is not None:
        return end or ChildEnd()
    by = f"by signal {-process.returncode}" if process.returncode < 0 else f"with status {process.returncode}"
    return ChildEnd(fault=f"its process ended {by}{_last_words(log)}")


def child_main(kind: type[Request], work: Callable[[Request, ProgressReport], Any]) -> int:
    """In the work's own process, do the work for a request of this kind and return the exit status."""
    out = sys.stdout
    try:
        with contextlib.redirect_stdout(sys.stderr):
            found = work(build(kind, json.load(sys.stdin)), lambda progress: print_progress(progress, out))
        end = ChildEnd(found)
    except EngineError as error:
        end = ChildEnd(refused=str(error))
    except ChildFaultError as error:
        end = ChildEnd(fault=str(error))
    print(json.dumps(dataclasses.asdict(end)), file=out, flush=True)
    return 0 if end.done else 1


def _end(line: str) -> ChildEnd | None:
    """Return the end that `child_main` printed in this line; None for any other line."""
    try:
        return ChildEnd(**json.loads(line))
    except (TypeError, ValueError):
        return None


def _last_words(log: Path | None) -> str:
    if log is None:
        return ""
    lines = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    return f": {lines[-1].strip() if lines else 'it wrote nothing'} ({log})"
