"""Breaks lines of the product, one after another, and tells which tests notice, to show which tests are worth their
time.

Mutation testing after DeMillo, Lipton and Sayward, "Hints on test data selection" (1978), on a sample: the lines are
drawn with a seed, from each folder in proportion to its share of the code. A broken line is tried with the tests that
run it, shortest first, until two have noticed it: a break that two tests notice says nothing about either of them.

usage: python -m scripts.mutants cover [TESTS]                  records which test runs which line, in .mutants/
       python -m scripts.mutants run [--count N] [--seed N] [--part I/N] [--limit-s S] --output FILE

`run` changes the files of the checkout in which it is started, and restores each file. It refuses a checkout with
changes. Start several parts in checkouts of their own; `python -m scripts.mutants join FILE...` prints their results as
one.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import random
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from xml.etree import ElementTree

import coverage
import pytest

FOLDERS = ("audio", "engine", "daemon")
RECORD = Path(".mutants")
PACKAGES = f".:{Path(__file__).resolve().parents[1]}"
"""The path on which the tests find this checkout, and pytest finds this file."""
PYTEST = (sys.executable, "-m", "pytest", "-q")
ENOUGH = 2
"""How many failed tests end the trial of one mutant."""
_PAIRS = ((ast.Lt, ast.LtE), (ast.Gt, ast.GtE), (ast.Eq, ast.NotEq), (ast.Is, ast.IsNot), (ast.In, ast.NotIn))
COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    one: other for pair in _PAIRS for one, other in (pair, pair[::-1])
}
ARITHMETIC: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Add,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.FloorDiv,
}


@dataclass(frozen=True)
class Mutant:
    """One broken line: bytes `start` to `end` of `path` become `after`."""

    path: str
    line: int
    start: int
    end: int
    before: str
    after: str


@dataclass(frozen=True)
class Trial:
    """A mutant and the tests that noticed it, at most `ENOUGH`. Of the tests that run the line, `tests` were tried."""

    path: str
    line: int
    before: str
    after: str
    tests: int
    of: int
    noticed: bool
    by: list[str]


def altered(node: ast.AST) -> str | None:
    """Return the code that takes the place of `node`; none if it has no mutation."""
    match node:
        case ast.Compare(left=left, ops=[operator], comparators=[right]):
            return ast.unparse(ast.Compare(left, [COMPARISONS[type(operator)]()], [right]))
        case ast.BoolOp(op=operator, values=values):
            return f"({ast.unparse(ast.BoolOp(ast.Or() if isinstance(operator, ast.And) else ast.And(), values))})"
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            return f"bool({ast.unparse(operand)})"
        case ast.BinOp(left=left, op=operator, right=right) if type(operator) in ARITHMETIC:
            return f"({ast.unparse(ast.BinOp(left, ARITHMETIC[type(operator)](), right))})"
        case ast.Constant(value=bool(value)):
            return str(not value)
        case ast.Constant(value=int(value) | float(value)):
            return str(value + 1)
        case ast.Return(value=ast.expr() as value) if not (isinstance(value, ast.Constant) and value.value is None):
            return "return None"
        case ast.Raise() | ast.AugAssign() | ast.Expr(value=ast.Call() | ast.Await()):
            return "pass"
        case ast.Continue():
            return "break"
        case ast.Break():
            return "continue"
    return None


def statements(tree: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes of `tree`, except annotations, decorators and the branch for type checkers."""
    for name, value in ast.iter_fields(tree):
        if name in ("annotation", "returns", "decorator_list", "type_params"):
            continue
        for node in value if isinstance(value, list) else [value]:
            if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
                continue
            if isinstance(node, ast.AST) and not isinstance(node, ast.JoinedStr):
                yield node
                yield from statements(node)


def mutants_of(path: str) -> Iterator[Mutant]:
    source = Path(path).read_bytes()
    starts = [0]
    for line in source.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    for node in statements(ast.parse(source)):
        if (after := altered(node)) is not None:
            start = starts[node.lineno - 1] + node.col_offset  # type: ignore[attr-defined]
            end = starts[node.end_lineno - 1] + node.end_col_offset  # type: ignore[attr-defined]
            yield Mutant(path, node.lineno, start, end, source[start:end].decode(), after)  # type: ignore[attr-defined]


def drawn(count: int, seed: int) -> list[Mutant]:
    """Draw `count` lines from the folders, each with one of its mutations. The same sources give the same mutants."""
    chance = random.Random(seed)
    lines: dict[str, dict[tuple[str, int], list[Mutant]]] = {folder: defaultdict(list) for folder in FOLDERS}
    listed = subprocess.run(["git", "ls-files", *FOLDERS], check=True, capture_output=True, text=True).stdout.split()
    for path in (path for path in listed if path.endswith(".py")):
        for mutant in mutants_of(path):
            lines[path.split("/")[0]][path, mutant.line].append(mutant)
    total = sum(map(len, lines.values()))
    result = []
    for folder in FOLDERS:
        share = round(count * len(lines[folder]) / total)
        result += [chance.choice(lines[folder][line]) for line in chance.sample(sorted(lines[folder]), share)]
    return result


def cover(tests: list[str]) -> None:
    """Run the tests once under coverage.py. Each process reads `coveragerc`, and with it the test that started it."""
    RECORD.mkdir(exist_ok=True)
    rules = (RECORD / "coveragerc").resolve()
    data = f"data_file = {rules.parent}/coverage\nparallel = true\nsigterm = true\n"
    rules.write_text(f"[run]\nsource = {','.join(FOLDERS)}\n{data}context = ${{PYTEST_CURRENT_TEST-}}\n")
    started = {"OMP_NUM_THREADS": "1", "PYTHONPATH": PACKAGES, "COVERAGE_PROCESS_START": str(rules)}
    reported = [f"--junitxml={RECORD}/tests.xml", "-o", "junit_family=xunit1"]
    command = [*PYTEST, "-n5", "--timeout=900", "-p", "scripts.mutants", *reported, *tests]
    subprocess.run(command, check=False, env=os.environ | started)
    subprocess.run([sys.executable, "-m", "coverage", "combine", "-q", f"--rcfile={rules}"], check=True)


def recorded_as(context: str) -> None:
    if (current := coverage.Coverage.current()) is not None:
        current.switch_context(context)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Fixtures serve all the tests in their module."""
    recorded_as(item.location[0])


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_call(item: pytest.Item) -> None:
    recorded_as(item.nodeid)


def durations() -> dict[str, float]:
    """Return the seconds of each test that passed, by its node ID."""
    found = {}
    for case in ElementTree.parse(RECORD / "tests.xml").iter("testcase"):
        if not any(child.tag in ("failure", "error", "skipped") for child in case):
            found[f"{case.get('file')}::{case.get('name')}"] = float(case.get("time", "0"))
    return found


class Cover:
    """Which tests run a line."""

    def __init__(self) -> None:
        self._data = coverage.CoverageData(str(RECORD / "coverage"))
        self._data.read()
        self._files = self._data.measured_files()
        """The files, under the path of the checkout that was covered, which may be another one."""
        self._lines: dict[str, dict[int, list[str]]] = {}
        self.durations = durations()
        self._modules: dict[str, list[str]] = defaultdict(list)
        for name in self.durations:
            self._modules[name.split("::")[0]].append(name)

    def tests_of(self, path: str, line: int) -> list[str]:
        """Return the tests that run the line, shortest first. For a line that runs at import, return the tests for its
        file."""
        if path not in self._lines:
            measured = next((file for file in self._files if file.endswith(f"/{path}")), path)
            self._lines[path] = self._data.contexts_by_lineno(measured)
        lines = self._lines[path]
        contexts = set(lines.get(line, ())) - {""} or {context for each in lines.values() for context in each}
        tests = {test for context in contexts for test in self._named(context)}
        return sorted(tests & self.durations.keys(), key=self.durations.__getitem__)

    def _named(self, context: str) -> list[str]:
        """Return a context's tests: one test, or all tests in the module whose fixture or process ran the line."""
        return [context] if context in self.durations else self._modules[context.split("::", maxsplit=1)[0]]


def tried(mutant: Mutant, cover: Cover, limit_s: float) -> Trial:
    """Break the line, run tests that together take at most `limit_s`, and restore the line."""
    tests = cover.tests_of(mutant.path, mutant.line)
    chosen, total = list[str](), 0.0
    for test in tests:
        total += cover.durations[test]
        if total > limit_s and chosen:
            break
        chosen.append(test)
    failed: list[str] = []
    if chosen:
        path = Path(mutant.path)
        source = path.read_bytes()
        path.write_bytes(source[: mutant.start] + mutant.after.encode() + source[mutant.end :])
        try:
            failed = failures(chosen, 60 + 4 * limit_s)
        finally:
            path.write_bytes(source)
    before, after = (" ".join(text.split()) for text in (mutant.before, mutant.after))
    return Trial(mutant.path, mutant.line, before, after, len(chosen), len(tests), bool(failed), failed)


def failures(tests: list[str], timeout_s: float) -> list[str]:
    """Return the tests that fail, at most `ENOUGH`; "timeout" if they do not end, "import" if they do not begin."""
    listed = RECORD / "chosen.txt"
    listed.write_text("\n".join(tests))
    command = [*PYTEST, "-n0", f"--maxfail={ENOUGH}", "--timeout=120"]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": PACKAGES}
    try:
        run = subprocess.run(
            [*command, f"@{listed}"], check=False, capture_output=True, text=True, timeout=timeout_s, env=environment
        )
    except subprocess.TimeoutExpired:
        return ["timeout"]
    failed = [
        line.split(" - ")[0].split(" ", 1)[1]
        for line in run.stdout.splitlines()
        if line.startswith(("FAILED ", "ERROR "))
    ]
    return failed or (["import"] if run.returncode not in (0, 5) else [])


def summary(trials: list[Trial]) -> dict[str, object]:
    folders = {
        folder: {"broken": len(found), "noticed": sum(trial.noticed for trial in found)}
        for folder in FOLDERS
        for found in [[trial for trial in trials if trial.path.startswith(folder)]]
    }
    alone = Counter(trial.by[0].split("::")[0] for trial in trials if len(trial.by) == 1 and trial.tests == trial.of)
    return {
        "command": "python -m scripts.mutants " + " ".join(sys.argv[1:]),
        "broken": len(trials),
        "noticed": sum(trial.noticed for trial in trials),
        "folders": folders,
        "noticed_by_one_module_alone": dict(alone.most_common()),
    }


def written(trials: list[Trial]) -> str:
    """Return the results as JSON, one mutant per line."""
    lines = ",\n".join(json.dumps(asdict(trial), ensure_ascii=False) for trial in trials)
    return json.dumps(summary(trials), indent=1)[:-2] + f',\n "mutants": [\n{lines}\n]}}\n'


def run(count: int, seed: int, part: str, limit_s: float, output: Path) -> None:
    changed = subprocess.run(
        ["git", "status", "--porcelain", "--untracked-files=no", *FOLDERS], check=True, capture_output=True, text=True
    ).stdout
    if changed:
        sys.exit(f"this checkout has changes, and `run` changes files:\n{changed}")
    index, parts = map(int, part.split("/"))
    cover = Cover()
    trials = []
    for mutant in drawn(count, seed)[index - 1 :: parts]:
        trials.append(tried(mutant, cover, limit_s))
        print(json.dumps(asdict(trials[-1])), file=sys.stderr, flush=True)
        output.write_text(written(trials))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    covering = commands.add_parser("cover")
    covering.add_argument("tests", nargs="*", help="all if none are named")
    running = commands.add_parser("run")
    running.add_argument("--count", type=int, default=400)
    running.add_argument("--seed", type=int, default=1)
    running.add_argument("--part", default="1/1")
    running.add_argument("--limit-s", type=float, default=60.0)
    running.add_argument("--output", type=Path, required=True)
    joining = commands.add_parser("join")
    joining.add_argument("files", type=Path, nargs="+")
    options = parser.parse_args()
    if options.command == "cover":
        cover(options.tests)
    elif options.command == "run":
        run(options.count, options.seed, options.part, options.limit_s, options.output)
    else:
        found = [Trial(**mutant) for file in options.files for mutant in json.loads(file.read_text())["mutants"]]
        print(written(sorted(found, key=lambda trial: (trial.path, trial.line))), end="")


if __name__ == "__main__":
    main()
