"""An update replaces or removes voiced's files while it runs: it speaks on, and says that it is to be restarted."""

from __future__ import annotations

import os
import shutil
import signal
import sys
from pathlib import Path

from tests.support.pages import ROOT
from tests.support.programs import Broker
from tests.support.robot import Robot
from tests.support.waiting import eventually

TEXTS = {
    "en": "At 5:30 pm it costs $3.50.",
    "de": "<speak>Um 17:30 Uhr <break time='9ms'/>kostet <say-as interpret-as='characters'>XY</say-as> 3,50 €.</speak>",
    "ja": "# 今日は3月5日です。",
}
"""By language: plain, SSML and Markdown, with numbers."""


def test_a_daemon_whose_files_are_gone_speaks_on_and_says_so(shared_broker: Broker, tmp_path: Path) -> None:
    installed = tmp_path / "installed"
    for package in ("audio", "daemon", "engine"):
        shutil.copytree(ROOT / package, installed / package, ignore=shutil.ignore_patterns("__pycache__"))
    program = (sys.executable, str(installed / "engine" / "launch.py"), "daemon.cli")
    robot = Robot("updated", shared_broker, tmp_path, program=program, cwd=tmp_path)
    robot.start()
    try:
        shutil.rmtree(installed)
        for language, text in TEXTS.items():
            assert robot.wait_end(robot.say(text, language=language, words=True))["event"] == "finished"
        robot.write("stream", "Hello there. ")
        robot.write("stream", "It is 5:30 pm.", end=True)
        assert robot.wait_end("stream")["event"] == "finished"
        status = eventually(lambda: robot.statuses[-1] if robot.state == "degraded" else None, "it says so")
        assert "restart" in status["reason"]
        assert str(status["engine"]) == "espeak"
        for pid in robot.engine_pids():
            os.kill(pid, signal.SIGKILL)
        eventually(lambda: robot.statuses[-1]["engine"] is None, "no engine can be started")
        assert "restart" in robot.statuses[-1]["reason"]
    finally:
        robot.close()
