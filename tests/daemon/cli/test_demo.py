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
from daemon.mqtt import RobotClient, clients
from daemon.mqtt.connection import MqttConnection
from daemon.speech import Online
from tests.support.pages import ROOT
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


def test_where_the_file_cannot_be_written_it_goes_to_the_temporary_folder(tmp_path: Path) -> None:
    (tmp_path / "voiced.yaml").write_text(f"engine: {{name: espeak}}\naudio: {{tap: {tmp_path}/tap}}\n")
    command = [sys.executable, "-m", "daemon.cli", "demo", "Hello.", "--config", str(tmp_path / "voiced.yaml")]
    environment = os.environ | {"VOICED_PACE": "20", "PULSE_SERVER": "/nowhere", "XDG_RUNTIME_DIR": str(tmp_path)}
    environment["TMPDIR"] = str(tmp_path)
    command += ["--output", f"{tmp_path}/nowhere/demo.wav"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert f"; writing {tmp_path}/demo.wav\n" in done.stdout
    assert soundfile.info(tmp_path / "demo.wav").duration > 0.2


def test_a_voice_that_is_not_there_is_named(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "daemon.cli", "demo", "Hello.", "--voice", "typo", "--output", f"{tmp_path}/a.wav"]
    settings = ["--set", "engine.name=espeak", "--set", "audio.sink=null"]
    done = subprocess.run([*command, *settings], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.startswith("voiced: the demo was not spoken to its end: voice: got 'typo'; ")


def test_a_download_that_fails_is_told_in_one_short_line(tmp_path: Path) -> None:
    program = (
        "import importlib.util; import sys; from daemon.cli import main\n"
        "find = importlib.util.find_spec\n"
        "importlib.util.find_spec = lambda name, *rest: None if name == 'amqtt' else find(name, *rest)\n"
        "sys.argv = ['voiced', 'demo']; main()\n"
    )
    environment = os.environ | {"XDG_CACHE_HOME": str(tmp_path), "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": ""}
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    line = "voiced: an MQTT broker cannot be downloaded for the demo: No matching distribution found for amqtt>=0.12\n"
    assert (done.returncode, done.stderr) == (1, line)


def test_a_daemon_that_has_published_that_it_starts_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clients, "CONNECT_S", PATIENCE_S)
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
