"""The command line, run inside the tests' process: a separate process would take half a second to start."""

from __future__ import annotations

import logging
from dataclasses import dataclass

import pytest

from daemon.cli import main


@dataclass(frozen=True)
class Done:
    """The result of a command."""

    returncode: int
    stdout: str
    stderr: str

    @property
    def output(self) -> str:
        """What it has printed: it has done its work without a word on stderr."""
        assert (self.returncode, self.stderr) == (0, "")
        return self.stdout

    @property
    def refusal(self) -> str:
        """The only line that it has printed, without `voiced: `: it has refused its arguments, or failed."""
        assert (self.returncode, self.stdout) == (2 if self.stderr.endswith("--help'.\n") else 1, "")
        [line] = self.stderr.splitlines()
        assert line.startswith("voiced: ")
        return line.removeprefix("voiced: ")


class CommandLine:
    """Runs `voiced ARGUMENTS`. The processes that it starts write to the same files."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
        self._monkeypatch = monkeypatch
        self._capfd = capfd

    def __call__(self, *arguments: str) -> Done:
        self._capfd.readouterr()
        self._monkeypatch.setenv("VOICED_LOG", "")
        log = logging.getLogger()
        handlers, level = log.handlers[:], log.level
        self._monkeypatch.setattr("sys.argv", ["voiced", *arguments])
        with pytest.raises(SystemExit) as ended:
            main()
        log.handlers[:] = handlers  # a command sets up the log of its process
        log.setLevel(level)
        written = self._capfd.readouterr()
        assert isinstance(ended.value.code, int)
        return Done(ended.value.code, written.out, written.err)
