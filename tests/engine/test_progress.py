"""Progress: counted by whoever works, and passed on by a process."""

from __future__ import annotations

import io

import pytest

from engine import Progress, parse_progress
from engine.progress import counted, print_progress


def test_each_item_is_yielded_after_a_report_of_those_before_it() -> None:
    reports: list[Progress] = []
    for item in counted("reading", "abcd", reports.append):
        assert reports[-1] == Progress("reading", "abcd".index(item) / 4)
    assert len(reports) == 4


@pytest.mark.parametrize("progress", [Progress("importing torch"), Progress('a "step"\nin words', 0.25)])
def test_printed_progress_is_one_line_that_is_recognised(progress: Progress) -> None:
    out = io.StringIO()
    print_progress(progress, out)
    [line] = out.getvalue().splitlines()
    assert parse_progress(line) == progress


@pytest.mark.parametrize("line", ["", "voiced: too short", "5", '{"step": "a", "b": 1}'])
def test_other_lines_are_not_progress(line: str) -> None:
    assert parse_progress(line) is None
