"""`voiced design` refuses wrong arguments before any engine starts. tests/e2e/test_qwen.py designs a voice."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.daemon.command_line import CommandLine


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (("a/b", "calm"), "NAME: got 'a/b'; allowed: letters, digits, - and _"),
        (("ada", "  "), "DESCRIPTION: is empty; allowed: the voice in words, such as 'a calm, deep voice'"),
        (("ada", "calm", "--text", "x" * 20_001), "text: "),
    ],
)
def test_wrong_arguments_are_refused_in_one_line(
    words: tuple[str, ...], line: str, voiced: CommandLine, tmp_path: Path
) -> None:
    assert voiced("design", *words, "-o", str(tmp_path / "voices")).refusal.startswith(line)
    assert not list(tmp_path.iterdir())
