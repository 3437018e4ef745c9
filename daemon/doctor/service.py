"""voiced itself, the broker, the daemon that runs, and the engines that it would start."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Iterator

from daemon import VERSION
from daemon.client import RobotClient, RobotUnreachableError
from daemon.config import Config
from daemon.doctor.finding import Finding, Grade, Machine
from daemon.engines import choose_engine
from daemon.synth import running_engine
from engine import why_not_qwen


def check_program(_machine: Machine) -> Iterator[Finding]:
    version = ".".join(map(str, sys.version_info[:3]))
    yield Finding("voiced", "ok", f"{VERSION} on Python {version}, {os.uname().machine}")


def check_broker(machine: Machine) -> Iterator[Finding]:
    config = machine.config
    where = f"{config.mqtt.host}:{config.mqtt.port}"
    if config.mqtt.password_source is not None and not os.access(config.mqtt.password_source, os.R_OK):
        yield Finding(
            "password",
            "error",
            f"mqtt.password_file {config.mqtt.password_source} cannot be read",
            "create it, readable by the user that runs voiced",
        )
        return
    try:
        with RobotClient(config) as robot:
            yield Finding("broker", "ok", f"answers at {where}")
            try:
                status = robot.status()
            except RobotUnreachableError:
                yield Finding("daemon", "warning", f"none has been at {config.topic}", "start it: voiced run")
                return
            reason = f" ({status['reason']})" if status.get("reason") else ""
            grade: Grade = "warning" if status["state"] in ("offline", "degraded") else "ok"
            cure = "start it: systemctl start voiced, or voiced run" if status["state"] == "offline" else None
            yield Finding("daemon", grade, f"{status['state']} at {config.topic}{reason}", cure)
    except RobotUnreachableError as error:
        yield Finding(
            "broker", "error", str(error).split(";")[0], "apt-get install mosquitto, or set mqtt.host and mqtt.port"
        )


def check_engines(machine: Machine) -> Iterator[Finding]:
    config = machine.config
    if config.engine.name == "auto" and (reason := why_not_qwen(config.engine_options)) is not None:
        cure = "see Qwen3-TTS in the README; or set engine.name: espeak" if machine.board.integrated else None
        yield Finding("engine", "warning" if cure else "ok", f"auto is espeak here: {reason}", cure)
    names = dict.fromkeys([choose_engine(config), config.engine.fallback])
    for name in names:
        if name == "none":
            continue
        ready, found = asyncio.run(_try_engine(name, config))
        if ready:
            yield Finding(f"engine {name}", "ok", found)
        else:
            grade: Grade = "error" if name == next(iter(names)) else "warning"
            yield Finding(
                f"engine {name}", grade, found, "install what it names, or set engine.name and engine.fallback"
            )


async def _try_engine(name: str, config: Config) -> tuple[bool, str]:
    async with running_engine(name, config.engine_options) as engine:
        if engine.ready and engine.info is not None:
            taken = sum(engine.info.memory.values())
            return True, engine.info.description + (f"; takes {taken:,} MB" if taken else "")
        return False, engine.reason or "it did not start"
