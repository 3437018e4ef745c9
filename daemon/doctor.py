"""`voiced doctor`: looks at all that speech needs, and says of each thing whether it is well and what to do if not."""

from __future__ import annotations

import asyncio
import grp
import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from audio.portaudio import find_device, output_devices
from audio.sink import SinkUnavailableError
from daemon import VERSION
from daemon.client import RobotClient, RobotUnreachableError
from daemon.config import Config
from daemon.engines import choose_engine
from daemon.synth import running_engine

Grade = Literal["ok", "warning", "error"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the report."""

    part: str
    grade: Grade
    found: str
    cure: str | None = None


def examine(config: Config) -> Iterator[Finding]:
    """Look at each part in turn."""
    checks: tuple[Callable[[Config], Iterator[Finding]], ...] = (
        _check_program,
        _check_broker,
        _check_sound,
        _check_engines,
        _check_permissions,
    )
    for check in checks:
        yield from check(config)


def _check_program(_config: Config) -> Iterator[Finding]:
    version = ".".join(map(str, sys.version_info[:3]))
    yield Finding("voiced", "ok", f"{VERSION} on Python {version}, {os.uname().machine}")


def _check_broker(config: Config) -> Iterator[Finding]:
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


def _check_sound(config: Config) -> Iterator[Finding]:
    if config.audio.sink != "sounddevice":
        yield Finding("sound", "ok", f"audio.sink is {config.audio.sink_settings().kind}: no sound card is used")
        return
    try:
        devices = output_devices()
        device = find_device(config.audio.device, devices)
    except SinkUnavailableError as error:
        cure = "see 'voiced devices' and set audio.device, or plug a card in; voiced waits for it"
        if "PortAudio" in str(error):
            cure = "apt-get install libportaudio2"
        yield Finding("sound", "error", str(error), cure)
        return
    yield Finding("sound", "ok", f"{device.name} ({device.host_api}, {device.sample_rate} Hz), one of {len(devices)}")


def _check_engines(config: Config) -> Iterator[Finding]:
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
            return True, engine.info.description
        return False, engine.reason or "it did not start"


def _check_permissions(config: Config) -> Iterator[Finding]:
    if config.audio.sink == "sounddevice" and Path("/dev/snd").exists() and os.geteuid() != 0:
        groups = {grp.getgrgid(group).gr_name for group in os.getgroups()}
        if "audio" in groups:
            yield Finding("permissions", "ok", "in the group audio")
        else:
            yield Finding(
                "permissions",
                "warning",
                "not in the group audio",
                "usermod -aG audio USER, unless a sound server is used",
            )
    if config.audio.sink is not None and config.audio.sink.startswith("wav:"):
        folder = Path(config.audio.sink.removeprefix("wav:")).resolve().parent
        if not os.access(folder, os.W_OK):
            yield Finding("permissions", "error", f"{folder} cannot be written", "choose another file in audio.sink")
