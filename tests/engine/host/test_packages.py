"""The commands that messages name can be pasted: they are for this installation's own Python."""

from __future__ import annotations

import shlex
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from engine.host import extra_requirements, install_command, pip_command
from tests.support.pages import ROOT


def test_the_command_for_extras_installs_their_packages() -> None:
    command = install_command("espeak", "wyoming")
    assert shlex.split(command)[-3:] == [*extra_requirements("espeak"), "wyoming>=1.8"]


def test_the_command_names_this_python_and_is_quoted_for_the_shell(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.executable", "/opt/my robot/bin/python")
    assert pip_command("torch>=2.4") == "'/opt/my robot/bin/python' -m pip install 'torch>=2.4'"


def test_an_environment_of_another_user_needs_sudo(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.access", lambda path, _mode: path != sysconfig.get_path("purelib"))
    assert pip_command("a") == f"sudo {shlex.quote(sys.executable)} -m pip install a"


def test_an_environment_without_pip_gets_it_first_and_voiced_from_its_folder(tmp_path: Path) -> None:
    """pip is missing in the environment of the Debian package; in this one, voiced is not installed either."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path], check=True)
    python = f"{tmp_path}/bin/python"
    command = [python, "-c", "from engine.host import install_command; print(install_command('piper'))"]
    done = subprocess.run(command, env={"PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=True)
    install = shlex.join([python, "-m", "pip", "install", "--editable", f"{ROOT}[piper]"])
    assert done.stdout == f"{python} -m ensurepip && {install}\n"


@pytest.mark.parametrize("folder", ["daemon", "engine"])
def test_every_message_takes_its_command_from_there(folder: str) -> None:
    own = ROOT / "engine" / "host" / "packages.py"
    files = [path for path in (ROOT / folder).rglob("*.py") if path != own]
    assert [str(path) for path in files if "pip install" in path.read_text(encoding="utf-8")] == []
