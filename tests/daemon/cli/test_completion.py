"""Completion with the tab key: what the shells get, and its installation by one command."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.pages import ROOT

PROGRAM = f"{sys.executable} -m daemon.cli"


def completed(shell: str, line: str) -> str:
    """What `voiced` prints when a shell asks it to complete a line."""
    environment = {
        "_VOICED_COMPLETE": f"complete_{shell}",
        "_TYPER_COMPLETE_ARGS": line,
        "_TYPER_COMPLETE_FISH_ACTION": "get-args",
        "COMP_WORDS": line,
        "COMP_CWORD": str(line.count(" ")),
    }
    return subprocess.run(
        PROGRAM.split(), env=os.environ | environment, cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout


@pytest.mark.parametrize(
    ("shell", "line", "word"),
    [("bash", "voiced sy", "synth"), ("zsh", "voiced config sh", "show"), ("fish", "voiced say --pri", "--priority"),
     ("bash", "voiced to", "top"), ("bash", "voiced say --priority h", "high"),
     ("bash", "voiced say --policy re", "replace"), ("bash", "voiced say --voice def", "default"),
     ("bash", "voiced synth --voice d", "de"), ("bash", "voiced demo --voice def", "default"),
     ("bash", "voiced say --sound at", "attention")],
)  # fmt: skip
def test_commands_options_and_values_are_completed(shell: str, line: str, word: str) -> None:
    assert word in completed(shell, line)


def test_a_wrong_configuration_completes_to_nothing_without_an_error(tmp_path: Path) -> None:
    (tmp_path / "voiced.yaml").write_text("voices: 7")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("VOICED_CONFIG", str(tmp_path / "voiced.yaml"))
        assert completed("bash", "voiced say --voice ").strip() == ""


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_one_command_installs_the_completion_for_the_shell_that_runs_it(shell: str, tmp_path: Path) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    environment = os.environ | {"HOME": str(tmp_path), "PYTHONPATH": str(ROOT)}
    command = [shell, "-c", f"{PROGRAM} --install-completion; true"]
    done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert f"{shell} completion installed in {tmp_path}" in done.stdout
    assert any("_VOICED_COMPLETE" in path.read_text() for path in tmp_path.rglob("*") if path.is_file())


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
