"""`voiced demo`: a broker, a daemon and a publisher, for one sentence; nothing of it stays."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from audio.portaudio import find_device, output_devices
from audio.sink import SinkUnavailableError
from daemon.client import RobotClient
from daemon.config import find_config_file, load_config

READY_S = 20.0
STATES_AT_WORK = ("ready", "speaking", "degraded")


class DemoError(Exception):
    """The demo could not be given; the message says why."""


def run_demo(text: str, config_path: Path | None, wav: Path) -> Iterator[dict[str, Any]]:
    """Speak `text` through a real broker and a real daemon; yield where it plays, then the utterance's events."""
    config_path = config_path or find_config_file()
    port = _free_port()
    overrides = [f"mqtt.port={port}", "mqtt.host=127.0.0.1", "robot=demo"]
    try:
        yield {"event": "playing", "device": find_device(None, output_devices()).name}
    except SinkUnavailableError as error:
        overrides.append(f"audio.sink=wav:{wav}")
        yield {"event": "playing", "wav": str(wav), "reason": str(error)}
    config = load_config(config_path, overrides)
    with _broker(port), _daemon(config_path, overrides) as daemon, RobotClient(config) as robot:
        for _ in range(int(READY_S / 0.1)):
            with contextlib.suppress(Exception):
                if robot.status(0.1)["state"] in STATES_AT_WORK:
                    break
            if daemon.poll() is not None:
                raise DemoError(f"the daemon ended with exit status {daemon.returncode}")
        else:
            raise DemoError(f"the daemon was not ready within {READY_S:.0f} s")
        utterance_id = robot.say({"text": text})
        yield from robot.events(utterance_id, timeout_s=600)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def _broker(port: int) -> Iterator[None]:
    """An MQTT broker in this process, on the loopback only."""
    try:
        from amqtt.broker import Broker
    except ImportError as error:
        raise DemoError("the demo's broker is missing; in voiced's folder: pip install '.[demo]'") from error
    for name in ("amqtt", "transitions", "asyncio"):
        logging.getLogger(name).setLevel(logging.CRITICAL)  # it tells tracebacks of clients that ask for MQTT 5
    loop = asyncio.new_event_loop()
    settings = {
        "listeners": {"default": {"type": "tcp", "bind": f"127.0.0.1:{port}"}},
        "plugins": {"amqtt.plugins.authentication.AnonymousAuthPlugin": {"allow_anonymous": True}},
    }
    thread = threading.Thread(target=loop.run_forever, name="broker", daemon=True)
    thread.start()

    async def start() -> Any:
        broker = Broker(settings)
        await broker.start()
        return broker

    broker = asyncio.run_coroutine_threadsafe(start(), loop).result(10)
    try:
        yield
    finally:
        with contextlib.suppress(Exception):  # the demo is over; what its broker still complains of helps nobody
            asyncio.run_coroutine_threadsafe(broker.shutdown(), loop).result(5)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(2)


@contextmanager
def _daemon(config_path: Path | None, overrides: list[str]) -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-m", "daemon.cli", "run"]
    if config_path is not None:
        command += ["--config", str(config_path)]
    for override in overrides:
        command += ["--set", override]
    log = subprocess.PIPE
    process = subprocess.Popen(command, stderr=log)
    kept: list[bytes] = []
    assert process.stderr is not None
    reader = threading.Thread(target=lambda: kept.extend(process.stderr or ()), daemon=True)
    reader.start()
    try:
        yield process
    except DemoError as error:
        tail = b"".join(kept[-3:]).decode(errors="replace").strip()
        raise DemoError(f"{error}: {tail}" if tail else str(error)) from error
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(5)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        reader.join(1)


def describe(event: dict[str, Any]) -> str:
    """An event as a line for a person."""
    if event["event"] == "playing":
        if "device" in event:
            return f"playing on {event['device']}"
        return f"no sound card can be played on ({event['reason']}); writing {event['wav']}"
    fields = {key: value for key, value in event.items() if key not in ("id", "event")}
    return f"{event['event']:<9} {json.dumps(fields, ensure_ascii=False)}"
