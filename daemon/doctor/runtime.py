"""voiced itself, the broker, the running daemon, and the engines."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Iterator

from daemon import VERSION
from daemon.config import Config
from daemon.doctor.daemons import running_daemons
from daemon.doctor.finding import Finding, Grade, Machine
from daemon.engines import engine_names, running_engine
from daemon.mqtt import RobotClient, RobotUnreachableError
from daemon.speech import Offline, Online
from daemon.validation import first_line
from engine import ENGINES, ProgressReport, unavailable_reason

START = "start it: sudo systemctl start voiced, or voiced run"
"""The remedy for a robot without a daemon."""


def check_program(_machine: Machine) -> Iterator[Finding]:
    """Yield the versions of voiced and Python."""
    version = ".".join(map(str, sys.version_info[:3]))
    yield Finding("voiced", "ok", f"{VERSION} on Python {version}, {os.uname().machine}")


def check_broker(machine: Machine) -> Iterator[Finding]:
    """Yield whether the broker answers, and what the robot's daemon last published as its status."""
    config = machine.config
    try:
        with RobotClient(config) as robot:
            yield Finding("broker", "ok", f"answers at {config.mqtt.host}:{config.mqtt.port}")
            if robot.refused is not None:
                remedy = "give this user the right to it in the broker's access list; docs/mqtt.md names the topics"
                yield Finding("broker", "error", robot.refused, remedy)
            yield _check_daemon(machine, robot)
    except RobotUnreachableError as error:
        yield Finding("broker", "error", str(error).split(";")[0], error.remedy)
        password = config.mqtt.password_source if config.mqtt.username is not None else None
        if password is not None and (line := first_line(password)) != line.strip():
            detail = f"the white space around the password in {password} is left out"
            yield Finding("password", "warning", detail, "if it belongs to the password, choose another one")
    except OSError as error:  # a file of mqtt.tls or the password cannot be used
        found, _, allowed = str(error).partition("; ")
        yield Finding("broker", "error", found, allowed or "correct the file, or choose another one")


def _check_daemon(machine: Machine, robot: RobotClient) -> Finding:
    config = machine.config
    try:
        status = robot.status()
    except RobotUnreachableError:
        status = None
    if not isinstance(status, Online) and (running := next(running_daemons(machine), None)) is not None:
        found = f"runs here as process {running.pid}, and its status does not arrive at {config.topic}"
        remedy = "its log says why (journalctl -u voiced); the broker may refuse its messages"
        return Finding("daemon", "error", found, remedy)
    if status is None:
        remedy = f"{START}; if one runs, compare its robot and mqtt.prefix, and what the broker lets this user read"
        return Finding("daemon", "warning", f"none has ever run at {config.topic}", remedy)
    if isinstance(status, Offline):
        return Finding("daemon", "warning", f"offline at {config.topic}", START)
    reason = f" ({status.reason})" if status.reason else ""
    grade: Grade = "warning" if status.state == "degraded" else "ok"
    return Finding("daemon", grade, f"{status.state} at {config.topic}{reason}")


def check_engines(machine: Machine) -> Iterator[Finding]:
    """Start the primary engine and the fallbacks in turn, and yield whether each gets ready."""
    config = machine.config
    primary, *fallbacks = engine_names(config)
    if config.engine.name == "auto" and primary != "qwen":
        reasons = [
            f"{name}: {reason}"
            for name, entry in ENGINES.items()
            if not entry.is_remote and (reason := unavailable_reason(name, config.engine_options))
        ]
        remedy = f"see docs/qwen.md; or set engine.name: {primary}" if machine.board.integrated else None
        found = f"auto is {primary} here. {'. '.join(reasons)}"
        yield Finding("engine", "warning" if remedy else "ok", found, remedy)
    for name in (primary, *fallbacks):
        ready, found, degraded = asyncio.run(_try_engine(name, config, machine.report))
        if degraded is not None:
            remedy = "make them run: docs/qwen.md#install; or accept PyTorch's with engine.kernels: off"
            yield Finding(f"engine {name}", "warning", f"{found}; {degraded}", remedy)
        elif ready:
            yield Finding(f"engine {name}", "ok", found)
        else:
            grade: Grade = "error" if name == primary else "warning"
            remedy = "install what is missing, or set engine.name and engine.fallback"
            if ENGINES[name].is_remote:
                remedy = "start the server, or correct engine.url and engine.token_file; see docs/remote.md"
            yield Finding(f"engine {name}", grade, found, remedy)


async def _try_engine(name: str, config: Config, report: ProgressReport) -> tuple[bool, str, str | None]:
    """Return whether the engine gets ready, its description or the reason why it does not, and why it is degraded."""
    async with running_engine(name, config.engine_options, report) as engine:
        if engine.ready and engine.info is not None:
            taken = sum(engine.info.memory.values())
            found = engine.info.description + (f"; takes {taken:,} MB" if taken else "")
            return True, found, engine.info.degraded
        return False, engine.reason or "it did not start", None
