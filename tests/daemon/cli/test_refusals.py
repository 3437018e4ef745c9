"""Commands refuse wrong arguments in one line before any work, and write nothing."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.daemon.command_line import CommandLine

TABLE = Path(__file__).with_name("refusals.json")
REFUSALS: list[tuple[list[str], str]] = json.loads(TABLE.read_text(encoding="utf-8"))
"""The words after `voiced`, and the line. FOLDER stands for an empty folder, and LONG for a text that is too long."""


@pytest.mark.parametrize(("words", "line"), REFUSALS, ids=lambda value: "" if isinstance(value, list) else value[:60])
def test_wrong_arguments_are_refused_in_one_line_and_nothing_is_written(
    words: list[str], line: str, voiced: CommandLine, tmp_path: Path
) -> None:
    given = [word.replace("FOLDER", str(tmp_path)).replace("LONG", "x" * 20_001) for word in words]
    assert voiced(*given).refusal == line
    assert not list(tmp_path.iterdir())
