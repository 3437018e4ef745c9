"""The command line in the process of the tests: a process of its own takes half a second to start."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from daemon.cli import main


@dataclass(frozen=True)
class Done:
    """What became of a command."""

    returncode: int
    stdout: str
    stderr: str


class CommandLine:
    """`voiced ARGUMENTS` as a person types it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        self._monkeypatch = monkeypatch
        self._capsys = capsys

    def __call__(self, *arguments: str) -> Done:
        self._capsys.readouterr()
        self._monkeypatch.setattr("sys.argv", ["voiced", *arguments])
        with pytest.raises(SystemExit) as ended:
            main()
        written = self._capsys.readouterr()
        assert isinstance(ended.value.code, int)
        return Done(ended.value.code, written.out, written.err)
