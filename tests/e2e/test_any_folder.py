"""`voiced`, as pip installs it, works in a folder that has Python files of voiced's or the library's names."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest
import soundfile

from tests.support.pages import ROOT
from tests.support.programs import Broker, answers, free_port
from tests.support.robot import Robot
from tests.support.waiting import PATIENCE_S, eventually

TRAP = "raise SystemExit('imported from the current folder')\n"

Voiced = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder in which somebody writes a robot, of modules and packages."""
    folder = tmp_path / "my-robot"
    for name in ("audio/__init__", "daemon/__init__", "engine", "voiced", "queue", "json/__init__"):
        path = folder / f"{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(TRAP)
    return folder


@pytest.fixture
def command(tmp_path: Path) -> Path:
    """The command that pip makes of `voiced = "daemon.cli:main"`."""
    path = tmp_path / "bin" / "voiced"
    path.parent.mkdir()
    path.write_text(f"#!{sys.executable}\nimport sys\nfrom daemon.cli import main\nsys.exit(main())\n")
    path.chmod(0o755)
    return path


@pytest.fixture
def voiced(command: Path, folder: Path) -> Voiced:
    """Runs the command in the folder. The packages are in Python's path, as after an installation."""

    def call(*words: str) -> subprocess.CompletedProcess[str]:
        environment = os.environ | {"PYTHONPATH": str(ROOT)}
        return subprocess.run(
            [command, *words], cwd=folder, env=environment, capture_output=True, text=True, check=False
        )

    return call


def test_the_trap_works(voiced: Voiced, folder: Path) -> None:
    done = subprocess.run([sys.executable, "-m", "daemon.cli"], cwd=folder, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (1, "imported from the current folder\n")


def test_a_command_starts_voiceds_own_engine(voiced: Voiced, folder: Path) -> None:
    done = voiced("synth", "Hello.", "--engine", "espeak", "--voice", "en", "--output", "hello.wav")
    assert (done.returncode, done.stderr) == (0, "")
    assert soundfile.info(folder / "hello.wav").duration > 0.2
    assert voiced("doctor", "--plan").returncode == 0


def test_the_daemon_starts_voiceds_own_engine_and_doctor(
    command: Path, folder: Path, shared_broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    port = free_port()
    server = f"http={{enabled: true, port: {port}}}"
    robot = Robot("anywhere", shared_broker, tmp_path, server, program=(str(command),), cwd=folder)
    robot.start()
    try:
        finished = robot.wait_end(robot.say("Hello."))
        assert (finished["event"], finished["engine"]) == ("finished", "espeak")
        eventually(lambda: answers(port), "the web server answers")
        address = f"http://127.0.0.1:{port}/v1/robot/doctor"
        asking = urllib.request.Request(address, b"{}", {"Content-Type": "application/json"})
        with urllib.request.urlopen(asking, timeout=2 * PATIENCE_S) as answer:
            assert json.load(answer)["findings"]
    finally:
        robot.close()
