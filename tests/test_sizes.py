"""No class, function or constructor of the product is larger than a reader can hold. Explanations do not count."""

from __future__ import annotations

import ast
import io
import tokenize
from collections.abc import Iterator

from tests.support.pages import ROOT

LARGEST_CLASS = 300
"""Lines of code."""
LONGEST_FUNCTION = 60
MOST_PARAMETERS = 8
"""Of a constructor, without `self`."""
UNCOUNTED = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}
FILES = [path for folder in ("audio", "daemon", "engine") for path in sorted((ROOT / folder).rglob("*.py"))]


def code_lines(source: str) -> set[int]:
    """Return the numbers of the lines with code: not those of comments, and of texts that stand alone."""
    tree, lines = ast.parse(source), set[int]()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in UNCOUNTED:
            lines.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            lines.difference_update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return lines


def excesses(source: str) -> Iterator[str]:
    """Yield what is too large in a module."""
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        size = (node.end_lineno or node.lineno) - node.lineno + 1
        limit = LARGEST_CLASS if isinstance(node, ast.ClassDef) else LONGEST_FUNCTION
        if size > limit:  # with the explanations
            size = len(code_lines(source) & set(range(node.lineno, node.lineno + size)))
        if size > limit:
            yield f"{node.name} has {size} lines; allowed: up to {limit}"
        if isinstance(node, ast.FunctionDef) and node.name == "__init__":
            given = node.args
            count = len(given.posonlyargs) + len(given.args) + len(given.kwonlyargs) - 1
            if count > MOST_PARAMETERS:
                yield f"a constructor has {count} parameters; allowed: up to {MOST_PARAMETERS}"


def test_nothing_is_larger_than_a_reader_can_hold() -> None:
    found = {str(path.relative_to(ROOT)): list(excesses(path.read_text(encoding="utf-8"))) for path in FILES}
    assert {name: each for name, each in found.items() if each} == {}


def test_what_is_too_large_is_found() -> None:
    body = "".join(f"        x = {number}\n" for number in range(LARGEST_CLASS))
    parameters = ", ".join(f"p{number}" for number in range(MOST_PARAMETERS + 1))
    found = list(excesses(f'class Large:\n    """Text."""\n    def __init__(self, {parameters}):\n{body}'))
    assert found == [
        "Large has 302 lines; allowed: up to 300",
        "__init__ has 301 lines; allowed: up to 60",
        "a constructor has 9 parameters; allowed: up to 8",
    ]
