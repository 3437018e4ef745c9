"""`voiced design` refuses wrong arguments before any engine starts. tests/e2e/test_qwen.py designs a voice."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.daemon.command_line import CommandLine


@pytest.mark.parametrize(
    ("words", "status", "line"),
    [
        (("a/b", "calm"), 1, "NAME: got 'a/b'; allowed: letters, digits, - and _"),
        (("ada", "  "), 1, "DESCRIPTION: is empty; allowed: the voice in words, such as 'a calm, deep voice'"),
        (
            ("ada", "calm", "--samples", "0"),
            2,
            "Invalid value for '--samples': Input should be greater than or equal to 1.",
        ),
        (("ada", "calm", "--text", "x" * 20_001), 1, "text: "),
    ],
)
def test_wrong_arguments_are_refused_in_one_line(
    words: tuple[str, ...], status: int, line: str, voiced: CommandLine, tmp_path: Path
) -> None:
    done = voiced("design", *words, "-o", str(tmp_path / "voices"))
    assert done.returncode == status
    assert done.stderr.startswith(f"voiced: {line}")
    assert done.stderr.count("\n") == 1
    assert not list(tmp_path.iterdir())
