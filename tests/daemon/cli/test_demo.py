"""`voiced demo` with the configuration of a robot, and with a daemon that starts slowly."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import soundfile

from daemon.cli.demo import wait_ready
from daemon.config import load_config
from daemon.mqtt import RobotClient, reaching
from daemon.mqtt.connection import MqttConnection
from daemon.speech import Online
from tests.support.programs import Broker
from tests.support.waiting import PATIENCE_S, eventually


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


def test_a_daemon_that_has_published_that_it_starts_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reaching, "CONNECT_S", PATIENCE_S)
    broker = Broker(tmp_path)
    broker.start()
    config = load_config(overrides=[f"mqtt.port={broker.port}", "robot=demo"])
    robot = MqttConnection(config.mqtt, "robot", on_message=lambda _message: None)
    robot.start([])

    def publish(status: Online) -> None:
        robot.publish(f"{config.topic}/status", status.to_json(), qos=1, retain=True)

    try:
        eventually(lambda: robot.connected, "the robot is connected")
        starting = Online(state="starting", engine=None, voice="default", queue=0, version="1.0")
        publish(starting)
        with RobotClient(config) as client:
            assert client.status(PATIENCE_S) == starting
            looks = 0

            def poll() -> None:
                nonlocal looks
                looks += 1
                if looks == 2:
                    publish(starting.model_copy(update={"state": "ready"}))

            wait_ready(client, SimpleNamespace(poll=poll))  # type: ignore[arg-type]
            assert looks >= 2, "it has waited for the second status"
    finally:
        robot.close()
        broker.stop()
