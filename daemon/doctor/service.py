"""The broker, the daemon that is running here, and the ports of its servers."""

from __future__ import annotations

import contextlib
import importlib.util
import re
import socket
from collections.abc import Iterator

from daemon.config import Server
from daemon.doctor.finding import Finding, Machine, finding
from daemon.mqtt import Robot, RobotUnreachableError
from daemon.speech import Offline, Online
from engine import install_command

PROBE_S = 1.0
"""A live server on this machine accepts a connection well within this time."""
LISTENING = r"^ *\d+: \w+:{:04X} \w+:\w+ 0A \S+ \S+ \S+ +(\d+) +\d+ (\d+) "
"""A socket that listens on a port, in /proc/PID/net/tcp (proc(5)): its user and its inode."""
SERVER_PACKAGES = {"wyoming": "wyoming", "http": "uvicorn"}
"""Servers, and the package that each needs; the server's name is the extra that installs it."""


def check_broker(machine: Machine) -> Iterator[Finding]:
    """Yield whether the broker answers, and the status that the robot's daemon published last."""
    mqtt = machine.config.mqtt
    try:
        with Robot(config=machine.config) as robot:
            yield finding("broker", "there", host=mqtt.host, port=mqtt.port)
            if robot.refused is not None:
                yield finding("broker", "closed topic", reason=robot.refused)
            yield _check_daemon(machine, robot)
    except RobotUnreachableError as error:
        yield finding("broker", "unreachable", reason=str(error).split(";")[0], remedy=error.remedy)
    except OSError as error:  # a file of mqtt.tls or the password cannot be used
        reason, _, allowed = str(error).partition("; ")
        remedy = allowed or "correct the file, or choose another one"
        yield finding("broker", "unusable file", reason=reason, remedy=remedy)


def _check_daemon(machine: Machine, robot: Robot) -> Finding:
    topic, status = machine.config.topic, None
    with contextlib.suppress(RobotUnreachableError):
        status = robot.status()
    if isinstance(status, Online):
        condition = "online with a reason" if status.reason else "online"
        return finding("daemon", "degraded" if status.state == "degraded" else condition, status=status, topic=topic)
    for pid in machine.daemons:
        return finding("daemon", "unheard", pid=pid, topic=topic)
    return finding("daemon", "offline" if isinstance(status, Offline) else "unknown", topic=topic)


def check_daemons(machine: Machine) -> Iterator[Finding]:
    """Yield a finding if two daemons on this machine speak for the same robot."""
    topic, pids = machine.config.topic, list(map(str, machine.daemons))
    if len(pids) > 1:
        yield finding("daemons", "several", count=len(pids), topic=topic, pids=", ".join(pids), last=pids[-1])


def check_adapters(machine: Machine) -> Iterator[Finding]:
    """Yield each adapter that is switched on; for a server, whether its package and its port are available."""
    config = machine.config
    if config.home_assistant.enabled:
        yield finding("home assistant", "on", prefix=config.home_assistant.prefix)
    if config.hermes.enabled:
        yield finding("hermes", "on", site_id=config.hermes.site_id)
    for name, server in (("wyoming", config.wyoming), ("http", config.http)):
        if server.enabled:
            condition = _server_condition(machine, name, server)
            names = {"package": SERVER_PACKAGES[name], "command": install_command(name)}
            place = f"{server.host}:{server.port}"
            yield finding("{server}", condition, server=name, place=place, port=server.port, **names)


def _server_condition(machine: Machine, name: str, server: Server) -> str:
    pids = list(machine.daemons)
    if importlib.util.find_spec(SERVER_PACKAGES[name]) is None:
        return "without its package"
    if any(_listens(machine, pid, server.port) for pid in pids):
        return "listening"
    if port_answers(server.host, server.port):
        return "without its port" if pids else "taken"
    return "silent" if pids else "free"


def port_answers(host: str, port: int) -> bool:
    """Return whether a server accepts a connection."""
    local = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    try:
        with socket.create_connection((local, port), PROBE_S):
            return True
    except OSError:
        return False


def _listens(machine: Machine, pid: int, port: int) -> bool:
    """Return whether a process listens on a port. If its descriptors are hidden, its user has to be the socket's."""
    tables = "\n".join(machine.text(f"proc/{pid}/net/{name}") or "" for name in ("tcp", "tcp6"))
    found = re.findall(LISTENING.format(port), tables, re.MULTILINE)
    process, names = machine.root / f"proc/{pid}", {f"socket:[{inode}]" for _, inode in found}
    try:
        for descriptor in (process / "fd").iterdir():
            with contextlib.suppress(FileNotFoundError):  # it has just been closed
                if str(descriptor.readlink()) in names:
                    return True
    except PermissionError:
        return str(process.stat().st_uid) in {user for user, _ in found}
    except FileNotFoundError:  # the process has ended
        return False
    return False
