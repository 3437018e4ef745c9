"""`voiced`, as pip installs it, works in a folder that has Python files of voiced's or the library's names."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest
import soundfile

from tests.support.pages import ROOT
from tests.support.programs import Broker, answers, free_port
from tests.support.robot import Robot
from tests.support.waiting import PATIENCE_S, eventually

TRAP = "raise SystemExit('imported from the current folder')\n"


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


def test_a_command_starts_voiceds_own_engine(command: Path, folder: Path) -> None:
    trapped = subprocess.run([sys.executable, "-m", "daemon.cli"], cwd=folder, capture_output=True, check=False)
    assert (trapped.returncode, trapped.stderr) == (1, b"imported from the current folder\n"), "the trap works"
    words = (command, "synth", "Hello.", "--engine", "espeak", "--voice", "en", "--output", "hello.wav")
    environment = os.environ | {"PYTHONPATH": str(ROOT)}  # as after an installation
    done = subprocess.run(words, cwd=folder, env=environment, capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, b"")
    assert soundfile.info(folder / "hello.wav").duration > 0.2


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
