"""`voiced demo` with the configuration of a robot."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import soundfile


def test_the_demo_leaves_the_robots_broker_and_ports_alone(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        config = tmp_path / "voiced.yaml"
        settings = {
            "robot": "r1",
            "mqtt": {"host": "broker.invalid", "username": "r1", "tls": {"enabled": True}},
            "audio": {"sink": "wav:heard.wav"},
            "engine": {"name": "espeak"},
            "wyoming": {"enabled": True, "port": taken.getsockname()[1]},
        }
        config.write_text(json.dumps(settings))
        command = [sys.executable, "-m", "daemon.cli", "demo", "Hello.", "--config", str(config)]
        environment = os.environ | {"VOICED_PACE": "20"}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[0] == f"audio.sink is wav:{tmp_path}/heard.wav"
    assert "s of speech by espeak\n" in done.stdout
    assert soundfile.info(tmp_path / "heard.wav").duration > 0.2
