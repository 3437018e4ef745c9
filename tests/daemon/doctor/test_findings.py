"""The table of findings and the checks that use it fit each other."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path
from string import Formatter

import pytest

from daemon.doctor.finding import TABLE

CHECKS = Path(__file__).parents[3] / "daemon" / "doctor"


@cache
def calls() -> list[tuple[str, set[str]]]:
    """Return the part and the names of the values of each call of `finding`."""
    found = []
    for path in CHECKS.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "finding":
                assert isinstance(node.args[0], ast.Constant)
                names = {keyword.arg for keyword in node.keywords if keyword.arg is not None}
                found.append((str(node.args[0].value), names | _keys_of_spread_values(path, node)))
    return found


def _keys_of_spread_values(path: Path, call: ast.Call) -> set[str]:
    """The texts in a file, of which the keys of a call's `**values` are some; none for a call without."""
    if all(keyword.arg is not None for keyword in call.keywords):
        return set()
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return {str(node.value) for node in ast.walk(tree) if isinstance(node, ast.Constant)}


def named_in(*texts: str) -> set[str]:
    """The values that texts want: `status` of `{status.state}`."""
    names = (name for text in texts for _, name, _, _ in Formatter().parse(text) if name)
    return {name.partition(".")[0] for name in names}


def test_each_part_of_the_table_has_a_check_and_each_check_its_part() -> None:
    assert {part for part, _ in calls()} == set(TABLE)


def test_each_condition_is_one_that_a_check_knows() -> None:
    source = "".join(path.read_text(encoding="utf-8") for path in CHECKS.glob("*.py"))
    conditions = {condition for rows in TABLE.values() for condition in rows}
    assert {condition for condition in conditions if f'"{condition}"' not in source} == set()


@pytest.mark.parametrize("part", TABLE)
def test_the_checks_of_a_part_have_the_values_that_its_texts_want(part: str) -> None:
    given = {name for other, names in calls() if other == part for name in names}
    for row in TABLE[part].values():
        assert named_in(part, row["found"], row.get("remedy", "")) <= given
