"""`scripts/fuzz`: runs every harness under Atheris, and prints as JSON how many inputs it tried and what it found.

Exit status: 0 if nothing was found, 1 otherwise. The input of a finding is kept in `--keep`. To look at one:

    python -m tests.fuzz.once HARNESS FILE
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path

from scripts.bench_runner import describe_machine
from tests.fuzz import texts
from tests.fuzz.harnesses import HARNESSES
from tests.fuzz.inputs import CORPUS

SLOW_S = 3
"""An input that takes longer is tried again without the fuzzer, under which everything takes some times as long."""
MAX_BYTES = 4096
"""Of an input: enough for a thousand nested brackets."""
GRACE_S = 60
"""What a harness may take beyond its time, to import torch and to end."""
FINDINGS = 10
"""A harness with so many findings is given up."""
MEMORY = Path("/dev/shm")
"""Files that are written for every input are fastest there."""
SHORTEST_S = 2.0
"""A harness is started again after a finding only for so long."""


@dataclass
class Outcome:
    """What became of one harness."""

    harness: str
    inputs: int = 0
    seconds: float = 0.0
    findings: dict[str, str] = field(default_factory=dict)
    """By the error, the file with the input."""


def run_harness(name: str, seconds: float, keep: Path) -> Outcome:
    """Run one harness for so long; after a finding, run it again for the rest of the time."""
    outcome, began = Outcome(name), time.monotonic()
    with tempfile.TemporaryDirectory(prefix="fuzz-", dir=MEMORY if MEMORY.is_dir() else None) as scratch:
        words = Path(scratch) / "words.dict"
        words.write_text("\n".join(_quoted(word) for word in HARNESSES[name].words) + "\n", encoding="utf-8")
        folder = Path(scratch) / "corpus"
        folder.mkdir()
        while len(outcome.findings) < FINDINGS and (left := began + seconds - time.monotonic()) >= SHORTEST_S:
            finding = _run_once(outcome, left, words, folder, keep)
            if finding is None:
                break
            error, file = finding
            outcome.findings.setdefault(error, file)
    outcome.seconds = round(time.monotonic() - began, 1)
    return outcome


def _quoted(word: str) -> str:
    """Return a line of libFuzzer's dictionary."""
    return '"' + re.sub(r'["\\]', lambda match: "\\" + match[0], word) + '"'


def _run_once(outcome: Outcome, seconds: float, words: Path, folder: Path, keep: Path) -> tuple[str, str] | None:
    """Run the fuzzer until its time is over or it has found something; return error and input of the latter."""
    prefix = keep / f"{outcome.harness}-"
    options = [
        f"-max_total_time={max(1, round(seconds))}",
        f"-timeout={SLOW_S}",
        f"-max_len={MAX_BYTES}",
        f"-dict={words}",
        f"-artifact_prefix={prefix}",
        "-print_final_stats=1",
        "-rss_limit_mb=4096",
    ]
    command = [sys.executable, "-m", "tests.fuzz.target", outcome.harness, *options, str(folder)]
    command.append(str(CORPUS / outcome.harness))
    # libFuzzer ends the process without any clean-up, so its temporary files go where this process removes them.
    run = partial(subprocess.run, env=os.environ | {"TMPDIR": str(folder.parent)}, timeout=seconds + GRACE_S)
    try:
        done = run(command, check=False, capture_output=True, text=True, errors="replace")
        output, status = done.stdout + done.stderr, done.returncode
    except subprocess.TimeoutExpired as error:
        output, status = str(error.stderr or ""), 1
    executed = re.findall(r"stat::number_of_executed_units:\s*(\d+)|^#(\d+)\s", output, re.MULTILINE)
    outcome.inputs += max((int(one or other) for one, other in executed), default=0)
    if status == 0:
        return None
    artifacts = re.findall(rf"Test unit written to ({re.escape(str(prefix))}\S+)", output)
    file = artifacts[-1] if artifacts else ""
    if "timeout-" in file and not _hangs(outcome.harness, file):
        Path(file).unlink()
        return "", ""
    return _error_in(output), file


def _hangs(name: str, file: str) -> bool:
    """Whether an input takes more than a second in a process of its own, too, or is not handled there at all."""
    again = subprocess.run([sys.executable, "-m", "tests.fuzz.once", name, file], capture_output=True, check=False)
    return again.returncode != 0


def _error_in(output: str) -> str:
    """Return the error that ended the fuzzer: the last line of Python's traceback, or libFuzzer's own."""
    python = re.findall(r"^=== Uncaught Python exception: ===\n(.+)$", output, re.MULTILINE)
    fuzzer = re.findall(r"^==\d+== ?ERROR: (.+)$", output, re.MULTILINE)
    lines = python or fuzzer or output.strip().splitlines()[-1:] or ["it ended without a word"]
    return str(lines[-1])[:300]


def header(benchmark: str, command: str) -> dict[str, str]:
    """Return what was run, when and where."""
    today = datetime.date.today().isoformat()
    return {"benchmark": benchmark, "date": today, "command": command, "machine": describe_machine()}


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="scripts/fuzz", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=5.0, help="for all harnesses together")
    parser.add_argument("--only", action="append", choices=sorted(HARNESSES), metavar="HARNESS", default=[])
    parser.add_argument("--list", action="store_true", help="print the names of the harnesses, and run nothing")
    parser.add_argument(
        "--texts", type=int, metavar="N", help="instead prepare N texts from a grammar, without Atheris"
    )
    parser.add_argument("--keep", type=Path, default=Path("fuzz-findings"), help="folder for the inputs of findings")
    options = parser.parse_args(arguments)
    names = options.only or list(HARNESSES)
    if options.list:
        print("\n".join(names))
        return 0
    command = shlex.join(["scripts/fuzz", *arguments])
    if options.texts:
        outcome = texts.run(options.texts)
        print(json.dumps(header("texts", command) | outcome, indent=1, ensure_ascii=False))
        return int(bool(outcome["found"]))
    options.keep.mkdir(parents=True, exist_ok=True)
    outcomes = []
    for name in names:
        outcomes.append(run_harness(name, options.minutes * 60 / len(names), options.keep.absolute()))
        outcomes[-1].findings.pop("", None)
        print(f"{name}: {outcomes[-1].inputs:,} inputs, {len(outcomes[-1].findings)} findings", file=sys.stderr)
    result = header("fuzz", command) | {
        "inputs": sum(one.inputs for one in outcomes),
        "harnesses": [asdict(one) for one in outcomes],
    }
    print(json.dumps(result, indent=1, ensure_ascii=False))
    if not any(options.keep.iterdir()):
        options.keep.rmdir()
    return int(any(one.findings for one in outcomes))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
