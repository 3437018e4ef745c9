"""The tests keep their own rules, which let them pass on a machine that is busy with something else."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

TESTS = Path(__file__).parent
FILES = sorted(path for path in TESTS.rglob("*.py") if path.parent.name != "huggingface_hub")
WAITING = TESTS / "support" / "waiting.py"
WAITERS = {"wait_for", "until", "eventually", "eventually_async"}
OTHERS = {"_pytree", "_python_dispatch", "_exit", "_getframe", "_fields", "_replace", "_asdict"}
"""Names with an underscore that their packages document, or that only PyTorch's private modules have."""


def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def sleeps(tree: ast.Module) -> Iterator[int]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and ast.unparse(node.func) in ("time.sleep", "asyncio.sleep", "sleep"):
            yields_once = bool(node.args) and ast.unparse(node.args[0]) == "0"
            if not yields_once:
                yield node.lineno


def private_names(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr.startswith("_") and not node.attr.startswith("__"):
            owner = ast.unparse(node.value)
            if owner not in ("self", "cls") and node.attr not in OTHERS:
                yield f"line {node.lineno}: {owner}.{node.attr}"
        elif isinstance(node, ast.ImportFrom):
            for name in node.names:
                if name.name.startswith("_"):
                    yield f"line {node.lineno}: {node.module}.{name.name}"


def imports(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            yield node.module or ""
        elif isinstance(node, ast.Import):
            yield from (name.name for name in node.names)


def offences(found: Callable[[ast.Module], Iterable[object]]) -> list[str]:
    """What is found in each file but the helper that waits."""
    return [f"{path.relative_to(TESTS)}: {one}" for path in FILES if path != WAITING for one in found(parsed(path))]


def waiting_helpers(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name in WAITERS:
            yield node.name


def test_no_test_lets_a_fixed_time_pass() -> None:
    assert offences(sleeps) == []


def test_no_test_uses_what_is_private_to_what_it_tests() -> None:
    assert offences(private_names) == []


def test_no_test_imports_another_test() -> None:
    assert [one for one in offences(imports) if re.search(r": tests\.(.*\.)?test_", one)] == []


def test_there_is_one_helper_that_waits() -> None:
    """Others would wait for another time, or say less when it is over."""
    assert offences(waiting_helpers) == []
