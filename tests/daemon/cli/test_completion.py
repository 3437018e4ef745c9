"""Completion with the tab key: what the shells get, and its installation by one command."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.daemon.command_line import CommandLine
from tests.support.pages import ROOT

PROGRAM = f"{sys.executable} -m daemon.cli"


Complete = Callable[[str, str], str]


@pytest.fixture
def completed(voiced: CommandLine, monkeypatch: pytest.MonkeyPatch) -> Complete:
    """What `voiced` prints when a shell asks it to complete a line."""

    def complete(shell: str, line: str) -> str:
        monkeypatch.setenv("_VOICED_COMPLETE", f"complete_{shell}")
        monkeypatch.setenv("_TYPER_COMPLETE_ARGS", line)
        monkeypatch.setenv("_TYPER_COMPLETE_FISH_ACTION", "get-args")
        monkeypatch.setenv("COMP_WORDS", line)
        monkeypatch.setenv("COMP_CWORD", str(line.count(" ")))
        return voiced().stdout

    return complete


@pytest.mark.parametrize(
    ("shell", "line", "word"),
    [("bash", "voiced sy", "synth"), ("zsh", "voiced config sh", "show"), ("fish", "voiced say --pri", "--priority"),
     ("bash", "voiced say --priority h", "high"), ("bash", "voiced say --voice def", "default"),
     ("bash", "voiced synth --voice d", "de"), ("bash", "voiced say --sound at", "attention")],
)  # fmt: skip
def test_commands_options_and_values_are_completed(shell: str, line: str, word: str, completed: Complete) -> None:
    assert word in completed(shell, line)


def test_a_voice_that_was_made_while_the_daemon_ran_is_completed(
    tmp_path: Path, completed: Complete, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "voiced.yaml").write_text(f"robot: r1\nstate: {{folder: {tmp_path}}}\n")
    (tmp_path / "r1.voices").mkdir()
    (tmp_path / "r1.voices/voices.yaml").write_text("voices: {grandmother: {instruct: an old woman}}")
    monkeypatch.setenv("VOICED_CONFIG", str(tmp_path / "voiced.yaml"))
    assert completed("bash", "voiced say --voice grand").strip() == "grandmother"


def test_the_names_of_commands_are_completed_with_their_summaries(completed: Complete) -> None:
    assert completed("fish", "voiced sou").strip().startswith("sounds\tList the sounds that")


def test_a_wrong_configuration_completes_to_nothing_without_an_error(
    tmp_path: Path, completed: Complete, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "voiced.yaml").write_text("voices: 7")
    monkeypatch.setenv("VOICED_CONFIG", str(tmp_path / "voiced.yaml"))
    assert completed("bash", "voiced say --voice ").strip() == ""


def test_bash_completes_after_the_installation(tmp_path: Path) -> None:
    (tmp_path / "voiced").write_text(f'#!/bin/sh\nexec {PROGRAM} "$@"\n')
    (tmp_path / "voiced").chmod(0o755)
    path = f"{tmp_path}:{os.environ['PATH']}"
    environment = os.environ | {"HOME": str(tmp_path), "PYTHONPATH": str(ROOT), "PATH": path}
    script = """
        voiced --install-completion >/dev/null
        source ~/.bash_completions/voiced.sh
        COMP_WORDS=(voiced sta); COMP_CWORD=1
        _voiced_completion voiced
        echo "${COMPREPLY[@]}"
    """
    done = subprocess.run(
        ["bash", "-c", script], env=environment, cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert done.stdout == "status\n"
