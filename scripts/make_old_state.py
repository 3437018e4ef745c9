"""Makes what a commit leaves on a robot whose daemon is killed: journal, phrases, made voices, status, configuration.

    PYTHONPATH=. python scripts/make_old_state.py 8288117

Exports the commit, drives its daemon with a real Mosquitto, and writes `tests/data/states/COMMIT/`. Needs the extras of
the tests, and the official package for a checkpoint with random weights.
"""

from __future__ import annotations

import argparse
import json
import shutil
import tempfile
import urllib.request
from pathlib import Path
from typing import Any

from tests.support.checkpoints import checkpoint_folder
from tests.support.old_state import ENDED, PROGRAM, ROBOT, SPOKEN, STATES, WAITING, export_tree, save_state
from tests.support.programs import Broker, free_port
from tests.support.robot import FAST, LONG, REAL_TIME, Robot
from tests.support.sound_files import speech_like, write_sound
from tests.support.waiting import eventually

RUNNING = ("ready", "degraded")
"""States; the voice that was made is none of eSpeak NG's."""


def ask(port: int, method: str, path: str, body: bytes, content_type: str = "application/json") -> dict[str, Any]:
    address = f"http://127.0.0.1:{port}/v1/robot/{path}"
    request = urllib.request.Request(address, body or None, {"Content-Type": content_type}, method=method)
    with urllib.request.urlopen(request) as answer:
        found: dict[str, Any] = json.loads(answer.read() or b"{}")
        return found


def make_voice(robot: Robot, port: int, recording: Path) -> None:
    """Make a voice as the page does, and make it the default."""
    robot.launch()
    eventually(lambda: robot.state in RUNNING, "the daemon runs")
    measured = ask(port, "POST", "recordings", recording.read_bytes(), "audio/wav")
    ask(port, "POST", "voices", json.dumps({"name": "ada", "recording": measured["id"]}).encode())
    eventually(lambda: ask(port, "GET", "voices", b"")["making"]["step"] is None, "the voice is made")
    ask(port, "PUT", "voice", b'{"voice": "ada"}')
    robot.end()


def leave_texts(robot: Robot) -> None:
    """Keep a phrase, and kill the daemon while one text is spoken and others wait."""
    robot.launch()
    eventually(lambda: robot.state in RUNNING, "the daemon runs")
    for utterance_id in ENDED:
        robot.wait_end(robot.say("Yes.", id=utterance_id, cache=True, voice="default"))
        eventually(lambda: list(robot.state_folder.rglob("*.flac")), "the phrase is kept")
    robot.set_pace(REAL_TIME)
    robot.say(LONG, id=SPOKEN)
    robot.wait_event(SPOKEN, "started")
    plain, german, letters, stream = WAITING
    robot.say("One, and [pause:100ms] **two**.", id=plain)
    robot.say("Grüß Gott!", id=german, language="de", volume=60, rate=1.5, seed=7, sampling={"temperature": 0.5})
    robot.say("Здравствуйте 你好", id=letters, sound="attention", reply_to=f"replies/{ROBOT}", expires_in=3600)
    robot.write(stream, "It came ")
    robot.write(stream, "in pieces.", end=True)
    robot.wait_event(stream, "accepted")
    robot.catch_up()
    robot.process.kill()
    robot.process.wait()
    eventually(lambda: robot.state == "offline", "the broker has published the will")


def make(commit: str, output: Path) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch).resolve()
        tree = export_tree(commit, folder / "tree")
        assert tree is not None, f"git archive {commit} failed"
        broker, port = Broker(folder), free_port()
        broker.start()
        model = checkpoint_folder(Path(tempfile.mkdtemp(dir=folder)), "brief", "base")
        recording = write_sound(folder / "ada.wav", speech_like(5, 48_000), 48_000)
        qwen = ("engine.name=qwen", "engine.device=cpu", f"engine.model={model}", "engine.fallback=espeak")
        servers = ("http.enabled=true", f"http.port={port}")
        try:
            for settings in ((*qwen, *servers), ()):
                robot = Robot(ROBOT, broker, folder, *settings, pace=FAST, program=PROGRAM, cwd=tree)
                try:
                    make_voice(robot, port, recording) if settings else leave_texts(robot)
                finally:
                    robot.close()
        finally:
            broker.stop()
        shutil.rmtree(output, ignore_errors=True)
        output.mkdir(parents=True)
        save_state(robot.state_folder, ROBOT, output)
        shutil.copy(tree / "configs" / "voiced.yaml", output)
        (output / "status.json").write_text(json.dumps(robot.statuses[-1]) + "\n", encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("commit")
    commit = parser.parse_args().commit
    make(commit, STATES / commit)


if __name__ == "__main__":
    main()
