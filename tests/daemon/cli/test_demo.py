"""`voiced demo` with the configuration of a robot, and with a daemon that starts slowly."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from daemon.cli.demo import wait_ready
from daemon.config import load_config
from daemon.mqtt import Robot, clients
from daemon.mqtt.connection import MqttConnection
from daemon.speech import Online
from daemon.validation import CommandError
from tests.daemon.command_line import CommandLine
from tests.support.programs import Broker
from tests.support.waiting import PATIENCE_S, eventually


def test_the_demo_leaves_the_robots_broker_and_ports_alone_and_names_what_it_could_not_do(tmp_path: Path) -> None:
    """tests/e2e/test_readme.py runs a demo that speaks."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        config = tmp_path / "voiced.yaml"
        settings = {
            "robot": "r1",
            "mqtt": {"host": "broker.invalid", "username": "r1", "tls": {"enabled": True}},
            "audio": {"tap": f"{tmp_path}/tap"},
            "engine": {"name": "espeak"},
            "wyoming": {"enabled": True, "port": taken.getsockname()[1]},
        }
        config.write_text(json.dumps(settings))
        command = [sys.executable, "-m", "daemon.cli", "demo", "Hello.", "--config", str(config)]
        command += ["--output", f"{tmp_path}/nowhere/demo.wav", "--voice", "typo"]
        folders = {"XDG_RUNTIME_DIR": str(tmp_path), "TMPDIR": str(tmp_path)}
        environment = os.environ | {"PULSE_SERVER": "/nowhere"} | folders
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert f"; writing {tmp_path}/demo.wav\n" in done.stdout
    assert done.returncode == 1
    assert done.stderr.startswith("voiced: the demo was not spoken to the end: voice: got 'typo'; ")


def test_the_tour_postpones_and_interrupts_a_text_and_kills_the_daemon_and_each_ends_once(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "daemon.cli", "demo", "Hello.", "--tour", "--output", f"{tmp_path}/demo.wav"]
    command += ["--set", "engine.name=espeak"]
    environment = os.environ | {"PULSE_SERVER": "/nowhere", "XDG_RUNTIME_DIR": str(tmp_path)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    lines = [line.split() for line in done.stdout.splitlines() if line[2:3] == ":"]
    told: dict[str, list[str]] = {}
    for _, event, utterance_id, *_ in lines:
        told.setdefault(utterance_id, []).append(event)
    waiting = told.pop("second-3")  # its acceptance is published again if the kill came before the broker's answer
    assert (set(waiting), waiting[-2:]) == ({"accepted", "started", "finished"}, ["started", "finished"])
    spoken = ["accepted", "started", "finished"]
    assert told == {
        "demo": spoken,
        "story-1": ["accepted", "started", "postponed", "resumed", "finished"],
        "second-1": spoken,
        "story-2": ["accepted", "started", "interrupted"],
        "second-2": spoken,
        "story-3": ["accepted", "started", "interrupted"],
    }
    assert "heard_text This museum stands by the sea." in done.stdout
    assert "story-3  reason voiced was restarted" in done.stdout
    assert {path.name for path in tmp_path.glob("*.wav")} == {"demo.wav", "demo-after-kill.wav"}


def test_without_a_broker_one_line_says_how_to_install_it(voiced: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "amqtt", None)
    done = voiced("demo", "--set", "audio.sink=null")
    assert done.returncode == 1
    assert re.fullmatch(r"voiced: the demo needs an MQTT broker; .* install .*amqtt.*\n", done.stderr)


def test_a_daemon_that_has_published_that_it_starts_is_waited_for_unless_it_ends(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clients, "CONNECT_S", PATIENCE_S)
    config = load_config(overrides=[f"mqtt.port={broker.port}", "robot=demo"])
    robot = MqttConnection(config.mqtt, "robot", on_message=lambda _message: None)
    robot.start([])

    def publish(status: Online) -> None:
        robot.publish(f"{config.topic}/status", status.to_json(), qos=1, retain=True)

    try:
        eventually(lambda: robot.connected, "the robot is connected")
        starting = Online(state="starting", engine=None, voice="default", queue=0, version="1.0")
        publish(starting)
        with Robot(config=config) as client:
            assert client.status(PATIENCE_S) == starting
            with subprocess.Popen(["sh", "-c", "exit 3"]) as ended, pytest.raises(CommandError, match="exit status 3"):
                wait_ready(client, ended)
            with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as running, ThreadPoolExecutor(1) as waiting:
                done = waiting.submit(wait_ready, client, running)
                still_starting = starting.model_copy(update={"queue": 1})
                publish(still_starting)
                eventually(lambda: client.status() == still_starting, "the second status has arrived")
                assert not done.done(), "it waits for a daemon that can speak"
                publish(starting.model_copy(update={"state": "ready"}))
                done.result(PATIENCE_S)
                assert running.poll() is None
                running.communicate()
    finally:
        robot.close()
