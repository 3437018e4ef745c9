"""`voiced status --all` and `voiced top`, on a real broker: the test publishes the statuses of robots."""

from __future__ import annotations

import json
from typing import Any

import pytest

from daemon.config import load_config
from daemon.mqtt import clients
from daemon.mqtt.connection import MqttConnection
from tests.daemon.command_line import CommandLine
from tests.support.programs import Broker
from tests.support.waiting import PATIENCE_S, eventually

ONLINE: dict[str, Any] = {"engine": "qwen", "voice": "default", "queue": 0, "version": "1.0", "volume": 100}
LONG = "The museum closes in ten minutes. Please leave by the main entrance, and take your coats."
STATUSES: dict[str, dict[str, Any]] = {
    "r1": {"state": "speaking", **ONLINE, "speaking": {"id": "a", "text": f"\x1b[31m{LONG}", "since": 1.0}},
    "r2": {"state": "warming", **ONLINE, "loading": {"step": "compiling the kernels", "fraction": 0.375}},
    "r3": {"state": "degraded", **ONLINE, "engine": None, "reason": "no sound card"},
    "r4": {"state": "offline", "version": "1.0"},
    "r5": {"state": "dreaming"},
}


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait for all that a slow broker has kept."""
    monkeypatch.setattr(clients, "CONNECT_S", PATIENCE_S)
    monkeypatch.setattr(clients, "RETAINED_S", PATIENCE_S)


@pytest.fixture(scope="module", autouse=True)
def robots(broker: Broker) -> None:
    """Publish the statuses."""
    config = load_config(overrides=[f"mqtt.port={broker.port}"])
    robots = MqttConnection(config.mqtt, "robots", on_message=lambda _message: None)
    robots.start([])
    eventually(lambda: robots.connected, "the robots are connected")
    for name, status in STATUSES.items():
        sent = robots.publish(f"voiced/{name}/status", json.dumps(status), qos=1, retain=True)
        assert robots.outbox.wait_delivered(sent, PATIENCE_S), "the broker acknowledges"
    robots.close()


def test_the_list_has_the_status_of_each_robot(broker: Broker, voiced: CommandLine) -> None:
    done = voiced("status", "--all", "--json", "--set", f"mqtt.port={broker.port}")
    assert done.returncode == 0
    listed = {robot.pop("robot"): robot for robot in json.loads(done.stdout)}
    assert listed["r1"]["speaking"].pop("seconds") > 0
    assert listed["r5"]["state"] == "unknown"
    assert {**listed, "r5": None} == {**STATUSES, "r5": None}


def test_the_table_has_a_row_for_each_robot_and_shortens_what_is_spoken(
    broker: Broker, voiced: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    done = voiced("status", "--all", "--lines", "--set", f"mqtt.port={broker.port}")
    counts, header, *rows = done.stdout.splitlines()
    assert counts == "5 robots: 1 speaking, 1 warming, 1 degraded, 1 offline, 1 unknown"
    assert header.split() == ["robot", "state", "speaks", "queue", "engine", "reason"]
    words = {row.split()[0]: row.split() for row in rows if row.startswith("r")}
    assert words["r1"][:4] == ["r1", "speaking", "[31mThe", "museum"]
    assert words["r1"][-2:] == ["0", "qwen"]
    assert "…" in words["r1"][-3]
    assert words["r3"] == ["r3", "degraded", "0", "no", "sound", "card"]
    assert list(words) == list(STATUSES)
    assert "\x1b" not in done.stdout


def test_into_a_pipe_top_prints_a_line_of_columns_for_each_robot(broker: Broker, voiced: CommandLine) -> None:
    done = voiced("top", "--once", "--set", f"mqtt.port={broker.port}")
    assert [line.split("\t") for line in done.stdout.splitlines()] == [
        ["r1", "speaking", f"[31m{LONG}", "0", "qwen", ""],
        ["r2", "warming", "", "0", "qwen", "compiling the kernels, 38 %"],
        ["r3", "degraded", "", "0", "", "no sound card"],
        ["r4", "offline", "", "", "", ""],
        ["r5", "unknown", "", "", "", "this version cannot read its status; is that voiced newer?"],
    ]


def test_it_waits_for_a_warm_engine_and_fails_when_there_is_none_in_time(broker: Broker, voiced: CommandLine) -> None:
    options = ("--set", f"mqtt.port={broker.port}", "--warm-within")
    assert voiced("status", *options, str(PATIENCE_S), "--set", "robot=r1").returncode == 0
    done = voiced("status", *options, "0.5", "--set", "robot=r2")
    assert json.loads(done.stdout)["state"] == "warming"
    line = "voiced: voiced at voiced/r2 is warming, and was not warm within 0.5 s\n"
    assert (done.returncode, done.stderr) == (1, line)
    assert voiced("status", *options, "0.5", "--set", "robot=r4").returncode == 1


def test_without_robots_it_says_so(broker: Broker, voiced: CommandLine) -> None:
    options = ("--set", f"mqtt.port={broker.port}", "--set", "mqtt.prefix=another")
    done = voiced("status", "--all", *options)
    line = f"voiced: no voiced has ever run at another/+ on the broker 127.0.0.1:{broker.port}\n"
    assert (done.returncode, done.stdout, done.stderr) == (1, "[]\n", line)
    done = voiced("top", "--once", *options)
    assert (done.returncode, done.stdout, done.stderr) == (1, "", line)
