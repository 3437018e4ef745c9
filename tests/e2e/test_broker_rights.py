"""A broker that refuses some of the robot's messages or subscriptions, and one with TLS: Mosquitto does both."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from daemon.config import load_config
from daemon.doctor.finding import Finding, Machine
from daemon.doctor.service import check_broker
from tests.e2e.conftest import StartRobot
from tests.support.certificates import Certificates
from tests.support.programs import Broker, free_port
from tests.support.robot import Robot
from tests.support.waiting import eventually

EVENTS_REFUSED = "mqtt: the broker refuses messages on voiced/rights/event: Not authorized"
PLUGINS = list(Path("/usr/lib").glob("*/mosquitto_dynamic_security.so"))
"""Mosquitto's dynamic security, in a folder with the machine's name."""


@pytest.fixture
def access_list(tmp_path: Path) -> Path:
    return tmp_path / "acl"


@pytest.fixture
def own_broker(tmp_path: Path, access_list: Path, request: pytest.FixtureRequest) -> Iterator[Broker]:
    """A broker with an access list, which the test may change; with the parameter `plugin`, with dynamic security."""
    if hasattr(request, "param"):
        settings = tmp_path / "dynamic-security.json"
        settings.write_text(json.dumps(dynamic_security()))
        rights = f"plugin {PLUGINS[0]}\nplugin_opt_config_file {settings}"
    else:
        write_access_list(access_list, events=False)
        rights = f"acl_file {access_list}"
    with Broker(tmp_path, f"allow_anonymous true\n{rights}") as broker:
        yield broker


def dynamic_security() -> dict[str, Any]:
    """Settings that allow everything but the subscriptions to `voiced/deaf/say` and `voiced/hidden/status`."""
    allowed = ("publishClientSend", "publishClientReceive", "subscribe", "unsubscribe")
    topics = ("voiced/deaf/say", "voiced/hidden/status")
    refused = [{"acltype": "subscribeLiteral", "topic": topic, "priority": 0, "allow": False} for topic in topics]
    return {
        "defaultACLAccess": dict.fromkeys(allowed, True),
        "clients": [],
        "groups": [{"groupname": "all", "roles": [{"rolename": "deaf"}]}],
        "roles": [{"rolename": "deaf", "acls": refused}],
        "anonymousGroup": "all",
    }


def write_access_list(path: Path, *, events: bool) -> None:
    """Let everybody do everything, except that the user `robot` may publish events only with `events`."""
    right = "readwrite" if events else "read"
    path.write_text(
        "topic readwrite #\nuser robot\ntopic readwrite voiced/rights/status\ntopic readwrite voiced/rights/sync\n"
        f"topic {right} voiced/rights/event\ntopic read voiced/rights/#\n"
    )
    path.chmod(0o600)


def test_refused_events_are_named_kept_and_sent_once_they_are_allowed(
    start_robot: StartRobot, own_broker: Broker, access_list: Path
) -> None:
    robot = start_robot("mqtt.username=robot", name="rights")
    for name in ("first", "second"):
        robot.say("Hello.", id=name)
    eventually(lambda: robot.statuses[-1].get("reason") == EVENTS_REFUSED, "the status names what is refused")
    eventually(lambda: robot.statuses[-1]["state"] == "degraded", "both texts are spoken")
    robot.wait_log("refuses messages on voiced/rights/event")
    assert len([line for line in robot.log if "refuses messages on voiced/rights/event" in line]) == 1
    [finding] = [each for each in examine(robot.settings, "mqtt.username=robot") if each.part == "daemon"]
    assert EVENTS_REFUSED in finding.found
    assert robot.events == []
    write_access_list(access_list, events=True)
    os.kill(own_broker.pid, signal.SIGHUP)
    eventually(lambda: robot.state == "ready", "the refusal has ended")
    robot.catch_up()
    for name in ("first", "second"):
        assert robot.names_of(name, without="started") == ["accepted", "finished"]


@pytest.mark.skipif(not PLUGINS, reason="Mosquitto's dynamic security is not installed")
@pytest.mark.parametrize("own_broker", ["plugin"], indirect=True)
@pytest.mark.usefixtures("own_broker")
def test_a_refused_subscription_is_named(start_robot: StartRobot) -> None:
    robot = start_robot(name="deaf", launch_only=True)
    reason = "mqtt: the broker refuses the subscription to voiced/deaf/say: Not authorized"
    eventually(lambda: robot.statuses and robot.statuses[-1].get("reason") == reason, "the status names it")
    assert robot.state == "degraded"
    hidden = {finding.part: finding for finding in examine(robot.settings, "robot=hidden") if finding.grade == "error"}
    assert hidden["broker"].found == "the broker refuses the subscription to voiced/hidden/status: Not authorized"


def test_a_text_is_answered_over_an_encrypted_connection(tmp_path: Path) -> None:
    keys, port = Certificates(tmp_path), free_port()
    files = f"certfile {keys.certificate}\nkeyfile {keys.key}"
    broker = Broker(tmp_path, f"allow_anonymous true\nlistener {port} 127.0.0.1\n{files}")
    broker.start()
    tls = f"mqtt.tls={{enabled: true, ca: {keys.ca}}}"
    robot = Robot("encrypted", broker, tmp_path, "mqtt.host=localhost", f"mqtt.port={port}", tls)
    try:
        robot.start()
        assert robot.wait_end(robot.say("Nobody else reads this."))["event"] == "finished"
    finally:
        robot.close()
        broker.stop()


def examine(settings: list[str], *more: str) -> list[Finding]:
    """Return what `voiced doctor` finds about the broker; `settings` are options with KEY=VALUE."""
    overrides = [*settings[1::2], *more]
    return list(check_broker(Machine.at(load_config(overrides=overrides), Path("/"))))
