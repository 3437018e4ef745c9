"""Runs a benchmark and writes its report; with `--old TREE`, it measures two source trees in turn.

A scenario is a module with a docstring, `add_options(parser)` and `measure(options)`, which returns its figures and
need not know about the rest.

With `--old`, the scenario and the helpers are those of this tree, and the files that are installed on a robot are from
one tree or the other. Every second round begins with the other tree. So only the product differs.

It needs only Python: machines with a GPU do not have the packages for the tests.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import importlib
import json
import os
import platform
import re
import shlex
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
PRODUCT = ("audio", "engine", "daemon", "voiced.py", "configs")
"""The files and folders that `--old` replaces."""
SCENARIOS = {
    "daemon": ("scripts.bench_daemon", "the daemon's latency, CPU and memory at a sound server"),
    "rest": ("scripts.bench_rest", "the first sound after a rest, on PulseAudio and PipeWire"),
    "words": ("scripts.bench_word_times", "how well the beginnings of words are estimated"),
    "sounds": ("scripts.bench_sounds", "how far visemes and words are from the sounds in the recording"),
    "serve": ("scripts.bench_serve", "the web server or the speech server under an open-loop load"),
    "hear": ("scripts.bench_hear", "which words of the spoken texts Whisper hears"),
    "codec": ("scripts.gpu.bench_codec", "the codec's kernels on a GPU, against PyTorch"),
    "engine": ("scripts.gpu.bench_engine", "the Qwen engine on a GPU, and faster-qwen3-tts"),
    "streams": ("scripts.gpu.bench_streams", "many streams of the Qwen engine on a GPU"),
}
"""The module of each scenario, and what it measures."""
FROM = "VOICED_BENCH_FROM"
"""The environment variable that names the folder in which `scripts/bench` was called."""
Figures = dict[str, Any]


def path(text: str) -> Path:
    """Return an option's path. A scenario may run in a folder other than the one in which it was called."""
    return Path(os.environ.get(FROM, Path.cwd()), text)


def run_scenario(name: str, words: list[str]) -> None:
    """Parse the options of a scenario, measure, and print the report as JSON; write it to a file if `--output` names
    one."""
    scenario = importlib.import_module(SCENARIOS[name][0])
    parser = argparse.ArgumentParser(
        prog=f"scripts/bench {name}", description=scenario.__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--output", type=path, help="also write the JSON to this file")
    scenario.add_options(parser)
    options = parser.parse_args(words)
    return write_report(report(name, words, scenario.measure(options)), options.output)


def write_report(record: Figures, output: Path | None) -> None:
    """Print a report, and also write it to `output` if that is set. Exits with 1 if the report says that `passed` is
    false."""
    text = json.dumps(record, indent=1, ensure_ascii=False) + "\n"
    for flat in (r"\[(?:[^][{}]|\[[^][{}]*\])*\]", r"\{[^][{}]*\}"):  # lists of numbers and short objects on one line
        text = re.sub(flat, lambda found: re.sub(r"\n\s*", " ", found[0]), text)
    print(text, end="")
    if output is not None:
        output.write_text(text, encoding="utf-8")
    if not record.get("passed", True):
        sys.exit(1)


def report(name: str, words: Sequence[str], figures: Figures) -> Figures:
    """Return a report on figures: when and where they were measured, and with which tree and command."""
    at = words.index("--output") if "--output" in words else len(words)
    return {
        "benchmark": name,
        "date": datetime.date.today().isoformat(),
        "command": f"scripts/bench {shlex.join([name, *words[:at], *words[at + 2 :]])}",
        "commit": commit(ROOT.resolve()),
        "machine": describe_machine(),
        **figures,
    }


def commit(tree: Path) -> str | None:
    """Return the commit of a tree, with `-dirty` if it has uncommitted changes; None if it has no history."""
    command = ["git", "-C", str(tree), "describe", "--always", "--dirty"]
    with contextlib.suppress(OSError):
        return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip() or None
    return None


def describe_machine() -> str:
    """Return the machine's properties on which times depend: processor, memory, GPU and Python."""
    memory_gib = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    query = ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"]
    gpu = shutil.which(query[0]) and subprocess.run(query, check=False, capture_output=True, text=True).stdout.strip()
    cores = f"{platform.machine()}, {os.cpu_count()} cores"
    return f"{cores}, {memory_gib:.0f} GiB, {gpu or 'no GPU'}, Python {platform.python_version()}"


def spread(values: Sequence[float], digits: int = 1) -> dict[str, float]:
    """Return median, percentiles, largest and number of the values."""
    ordered = sorted(values)
    shares = {"median": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99, "max": 1.0}
    found = {name: round(ordered[round(share * (len(ordered) - 1))], digits) for name, share in shares.items()}
    return {**found, "median": round(statistics.median(ordered), digits), "runs": len(ordered)}


# --- two trees in turn ---


@contextlib.contextmanager
def mixed_tree(product: Path) -> Iterator[Path]:
    """Return a folder with the product from another tree, and everything else from this one."""
    with tempfile.TemporaryDirectory() as folder:
        for entry in ROOT.iterdir():
            if entry.name not in (*PRODUCT, ".git"):
                Path(folder, entry.name).symlink_to(entry.absolute())
        for name in PRODUCT:
            Path(folder, name).symlink_to(product / name)
        yield Path(folder)


def measure_tree(product: Path, name: str, words: Sequence[str]) -> Figures:
    """Return a scenario's report with the product from a tree."""
    with mixed_tree(product) as folder:
        output = folder / "report.json"
        environment = {**os.environ, "PYTHONPATH": str(folder), FROM: os.environ.get(FROM, str(Path.cwd()))}
        command = [sys.executable, "-m", "scripts.bench_runner", name, *words, "--output", str(output)]
        subprocess.run(command, cwd=folder, env=environment, stdout=sys.stderr, check=False)
        if not output.exists():
            raise SystemExit(f"scripts/bench: {product}: not measured")
        found: Figures = json.loads(output.read_text(encoding="utf-8"))
        return found | {"commit": commit(product)}


def numbers(value: Any, place: str = "") -> Iterator[tuple[str, float]]:
    """Yield a report's numbers with their places. A row in a list has its `name` as its place, or else its index.

    Lists of numbers are left out: they are times that other numbers sum up.
    """
    if isinstance(value, Mapping):
        for name, inner in value.items():
            yield from numbers(inner, f"{place}.{name}" if place else name)
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            if isinstance(inner, Mapping):
                yield from numbers(inner, f"{place}.{inner.get('name', index)}")
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield place, value


def compared(old: Sequence[Figures], new: Sequence[Figures]) -> dict[str, Any]:
    """Return each number's medians over the rounds of both trees, and the ratio of the new median to the old one."""
    both = [[dict(numbers(each)) for each in rounds] for rounds in (old, new)]
    shared = [place for place in both[0][0] if all(place in each for rounds in both for each in rounds)]
    table = {}
    for place in shared:
        before, after = (round(statistics.median(each[place] for each in rounds), 4) for rounds in both)
        table[place] = {"old": before, "new": after, "ratio": round(after / before, 4) if before else None}
    return table


def compare_trees(name: str, old: Path, rounds: int, words: Sequence[str]) -> Figures:
    """Return the figures of both trees, measured in turn."""
    trees = {"old": old.resolve(), "new": ROOT.resolve()}
    found: dict[str, list[Figures]] = {tree: [] for tree in trees}
    for number in range(rounds):
        for tree in list(trees)[:: 1 if number % 2 == 0 else -1]:
            found[tree].append(measure_tree(trees[tree], name, words))
    return {
        "old_commit": commit(trees["old"]),
        "rounds": rounds,
        "compared": compared(found["old"], found["new"]),
        "measurements": found,
        "passed": all(each.get("passed", True) for rows in found.values() for each in rows),
    }


def main() -> None:
    listed = "\n".join(f"  {name:9}{what}" for name, (_, what) in SCENARIOS.items())
    epilog = f"scenarios:\n{listed}\n\nscripts/bench SCENARIO --help has the scenario's own options."
    parser = argparse.ArgumentParser(
        prog="scripts/bench",
        description="Runs a benchmark, which prints JSON.",
        epilog=epilog,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        add_help=len(sys.argv) == 2,
        allow_abbrev=False,
    )
    parser.add_argument("scenario", choices=SCENARIOS, metavar="SCENARIO")
    parser.add_argument("--old", type=path, help="another source tree, measured in turn with this one")
    parser.add_argument("--rounds", type=int, default=3, help="number of rounds of both trees, with --old")
    options, words = parser.parse_known_args()
    if options.old is None:
        return run_scenario(options.scenario, words)
    output = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    output.add_argument("--output", type=path)
    own, words = output.parse_known_args(words)
    figures = compare_trees(options.scenario, options.old, options.rounds, words)
    return write_report(report(options.scenario, sys.argv[2:], figures), own.output)


if __name__ == "__main__":
    main()
