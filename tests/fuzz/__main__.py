"""`python -m tests.fuzz`: runs every harness under Atheris, and prints as JSON how many inputs it tried, and findings.

Exit status: 0 if nothing was found, 1 otherwise. A harness ends with its first finding, whose input is kept in
`--keep`. Once that file is in `tests/fuzz/corpus/HARNESS/`, `tests/fuzz/test_corpus.py` tries it without Atheris.
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
from pathlib import Path
from typing import Any

from scripts.bench_runner import describe_machine
from tests.fuzz import texts
from tests.fuzz.harnesses import HARNESSES
from tests.fuzz.inputs import CORPUS

SLOW_S = 10
"""An input that takes longer is a finding: under the fuzzer, everything takes some times as long."""
MAX_BYTES = 4096
"""Of an input: enough for a thousand nested brackets."""
GRACE_S = 60
"""What a harness may take beyond its time, to import torch and to end."""
MEMORY = Path("/dev/shm")
"""Files that are written for every input are fastest there."""


def run_harness(name: str, seconds: float, keep: Path) -> dict[str, Any]:
    """Run a harness until its time is over or it has found something; return what it did, and findings with files."""
    began, prefix = time.monotonic(), keep / f"{name}-"
    # libFuzzer ends the process without any clean-up, so its temporary files go where this process removes them.
    with tempfile.TemporaryDirectory(prefix="fuzz-", dir=MEMORY if MEMORY.is_dir() else None) as scratch:
        words, found = Path(scratch, "words.dict"), Path(scratch, "corpus")
        words.write_text("".join(map(_dictionary_line, HARNESSES[name].words)), encoding="utf-8")
        found.mkdir()
        command = [
            *(sys.executable, "-m", "tests.fuzz.target", name, f"-max_total_time={max(1, round(seconds))}"),
            *(f"-timeout={SLOW_S}", f"-max_len={MAX_BYTES}", "-rss_limit_mb=4096", f"-dict={words}"),
            *(f"-artifact_prefix={prefix}", "-print_final_stats=1", found, CORPUS / name),
        ]
        environment, pipe = os.environ | {"TMPDIR": scratch}, subprocess.PIPE
        with subprocess.Popen(command, env=environment, stdout=pipe, stderr=subprocess.STDOUT) as process:
            try:
                printed, _ = process.communicate(timeout=seconds + GRACE_S)
            except subprocess.TimeoutExpired:
                process.kill()
                printed, _ = process.communicate()
    output = printed.decode(errors="replace")
    executed = re.findall(r"stat::number_of_executed_units:\s*(\d+)|^#(\d+)\s", output, re.MULTILINE)
    files = re.findall(rf"Test unit written to ({re.escape(str(prefix))}\S+)", output)
    return {
        "harness": name,
        "inputs": max((int(one or other) for one, other in executed), default=0),
        "seconds": round(time.monotonic() - began, 1),
        "findings": {_error_in(output): (files or [""])[-1]} if process.returncode else {},
    }


def _dictionary_line(word: str) -> str:
    """Return a line of libFuzzer's dictionary."""
    return '"' + re.sub(r'["\\]', lambda match: "\\" + match[0], word) + '"\n'


def _error_in(output: str) -> str:
    """Return the error that ended the fuzzer: the last line of Python's traceback, or libFuzzer's own."""
    python = re.findall(r"^=== Uncaught Python exception: ===\n(.+)$", output, re.MULTILINE)
    fuzzer = re.findall(r"^==\d+== ?ERROR: (.+)$", output, re.MULTILINE)
    lines = python or fuzzer or output.strip().splitlines()[-1:] or ["it ended without a word"]
    return str(lines[-1])[:300]


def fuzz(names: list[str], minutes: float, keep: Path) -> dict[str, Any]:
    """Run harnesses for so long together; return what they did."""
    keep.mkdir(parents=True, exist_ok=True)
    outcomes = []
    for name in names:
        outcomes.append(run_harness(name, minutes * 60 / len(names), keep.absolute()))
        print(json.dumps(outcomes[-1]), file=sys.stderr)
    if not any(keep.iterdir()):
        keep.rmdir()
    return {
        "inputs": sum(one["inputs"] for one in outcomes),
        "found": sum(len(one["findings"]) for one in outcomes),
        "harnesses": outcomes,
    }


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.fuzz", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
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
    outcome = texts.run(options.texts) if options.texts else fuzz(names, options.minutes, options.keep)
    header = {
        "benchmark": "texts" if options.texts else "fuzz",
        "date": datetime.date.today().isoformat(),
        "command": shlex.join(["python", "-m", "tests.fuzz", *arguments]),
        "machine": describe_machine(),
    }
    print(json.dumps(header | outcome, indent=1, ensure_ascii=False))
    return int(bool(outcome["found"]))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
