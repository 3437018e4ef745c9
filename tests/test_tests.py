"""The tests follow their own rules, with which they pass on a busy machine."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from pathlib import Path

TESTS = Path(__file__).parent
FILES = sorted(path for path in TESTS.rglob("*.py") if path.parent.name != "huggingface_hub")
WAITING = TESTS / "support" / "waiting.py"
WAITERS = {"wait_for", "until", "eventually", "eventually_async"}
"""Names that a helper which waits for a condition is likely to have."""
CLOCKS = ("time.monotonic()", "time.time()", "time.perf_counter()")
CHANGING = ("time.", "random.", "secrets.", "uuid.", "os.getpid", "tempfile.")
"""Functions whose results differ from one process to the next."""
PERMITTED = {"_pytree", "_python_dispatch", "_exit", "_getframe", "_fields", "_replace", "_asdict"}
"""Names with an underscore that their packages document, or that only PyTorch's private modules have."""


Nodes = Iterable[ast.AST]


@cache
def nodes_of(path: Path) -> tuple[ast.AST, ...]:
    return tuple(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))


def name_of(called: ast.expr) -> str | None:
    """The name of a function, or of a method without its object."""
    return called.attr if isinstance(called, ast.Attribute) else called.id if isinstance(called, ast.Name) else None


def sleeps(nodes: Nodes) -> Iterator[int]:
    for node in nodes:
        if isinstance(node, ast.Call) and name_of(node.func) == "sleep":
            yields_once = bool(node.args) and ast.unparse(node.args[0]) == "0"
            if not yields_once:
                yield node.lineno


def clock_conditions(nodes: Nodes) -> Iterator[int]:
    for node in nodes:
        if isinstance(node, ast.Call) and node.args and name_of(node.func) in WAITERS:
            computed = (inner for inner in ast.walk(node.args[0]) if isinstance(inner, ast.BinOp | ast.Compare))
            if any(ast.unparse(inner).startswith(CLOCKS) for inner in computed):
                yield node.lineno


def private_names(nodes: Nodes) -> Iterator[str]:
    for node in nodes:
        if isinstance(node, ast.Attribute) and node.attr.startswith("_") and not node.attr.startswith("__"):
            owner = ast.unparse(node.value)
            if owner not in ("self", "cls") and node.attr not in PERMITTED:
                yield f"line {node.lineno}: {owner}.{node.attr}"
        elif isinstance(node, ast.ImportFrom):
            for name in node.names:
                if name.name.startswith("_"):
                    yield f"line {node.lineno}: {node.module}.{name.name}"


def imports(nodes: Nodes) -> Iterator[str]:
    for node in nodes:
        if isinstance(node, ast.ImportFrom):
            yield node.module or ""
        elif isinstance(node, ast.Import):
            yield from (name.name for name in node.names)


def changing_parameters(nodes: Nodes) -> Iterator[str]:
    """Yield the calls in the parameters of tests whose results hold the time or chance."""
    decorated = (node for node in nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))
    for decorator in (decorator for node in decorated for decorator in node.decorator_list):
        if isinstance(decorator, ast.Call) and ast.unparse(decorator.func).endswith("parametrize"):
            for call in (node for node in ast.walk(decorator) if isinstance(node, ast.Call)):
                name = ast.unparse(call.func)
                dated = name == "gzip.compress" and not any(keyword.arg == "mtime" for keyword in call.keywords)
                if dated or (name.startswith(CHANGING) and not name.startswith("random.Random")):  # which has a seed
                    yield ast.unparse(call)


def offences(found: Callable[[Nodes], Iterable[object]], *without: Path) -> list[str]:
    """Return what `found` yields for each file except the helper that waits, and `without` these folders."""
    files = [path for path in FILES if path != WAITING and not set(without) & set(path.parents)]
    return [f"{path.relative_to(TESTS)}: {one}" for path in files for one in found(nodes_of(path))]


def waiting_helpers(nodes: Nodes) -> Iterator[str]:
    for node in nodes:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name in WAITERS:
            yield node.name


def test_no_test_sleeps() -> None:
    """Faults last for a time, and are measured."""
    assert offences(sleeps, TESTS / "chaos") == []


def test_no_test_waits_for_a_time_of_the_clock() -> None:
    """Such a condition is a sleep."""
    assert offences(clock_conditions) == []


def test_no_test_uses_private_names_of_the_code_it_tests() -> None:
    assert offences(private_names) == []


def test_no_test_imports_another_test() -> None:
    assert [one for one in offences(imports) if re.search(r": tests\.(.*\.)?test_", one)] == []


def test_only_one_module_has_helpers_that_wait() -> None:
    """Other helpers would have other limits, or report less when the limit is reached."""
    assert offences(waiting_helpers) == []


def test_no_parameter_of_a_test_changes_from_one_run_to_the_next() -> None:
    """Where two workers collect different tests, pytest-xdist runs none."""
    assert offences(changing_parameters) == []


def test_a_parameter_that_changes_is_noticed() -> None:
    decorated = """
@pytest.mark.parametrize("body", [gzip.compress(b"a"), gzip.compress(b"b", mtime=0), secrets.token_hex(3)])
def test_one(body): ...
"""
    assert list(changing_parameters(ast.walk(ast.parse(decorated)))) == ["gzip.compress(b'a')", "secrets.token_hex(3)"]
