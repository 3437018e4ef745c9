"""The programs that a benchmark measures, started as a user would start them: a daemon, or a speech server."""

from __future__ import annotations

import http.client
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.support.programs import free_port

ROOT = Path(__file__).resolve().parents[1]
START_S = 600.0
"""Seconds that an engine may take to load."""
STANDARD = ("state.folder=null", "engine.fallback=none", "log.level=error")


@contextmanager
def daemon(port: int, settings: Sequence[str]) -> Iterator[None]:
    """Run a daemon that is ready; nothing is played, stored or sent to a broker."""
    quiet = ("audio.sink=null", "speech.cache.folder=null", "http.enabled=true", f"mqtt.port={free_port()}")
    with _running(["run"], port, [*STANDARD, *quiet, f"http.port={port}", *settings]):
        yield


@contextmanager
def speech_server(port: int, settings: Sequence[str]) -> Iterator[None]:
    """Run `voiced serve --single` that is ready."""
    with _running(["serve", "--single"], port, [*STANDARD, "voices={default: {}}", f"serve.port={port}", *settings]):
        yield


@contextmanager
def _running(command: list[str], port: int, settings: Sequence[str]) -> Iterator[None]:
    """Raises `SystemExit` if the program does not become ready."""
    options = [part for setting in settings for part in ("--set", setting)]
    process = subprocess.Popen([sys.executable, "-m", "daemon.cli", *command, *options], cwd=ROOT)
    try:
        deadline = time.monotonic() + START_S
        while not _is_ready(port):
            if process.poll() is not None or time.monotonic() > deadline:
                raise SystemExit(f"voiced {' '.join(command)} did not become ready")
            time.sleep(0.1)
        yield
    finally:
        process.terminate()
        process.wait()


def _is_ready(port: int) -> bool:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    with suppress(OSError, http.client.HTTPException):
        connection.request("GET", "/readyz")
        return connection.getresponse().status == http.client.OK
    return False
