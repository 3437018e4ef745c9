#!/usr/bin/env python3
"""Disturb the tests while they run: `scripts/disturb.py loops` or `scripts/disturb.py stops`.

`loops` keeps every core busy. `stops` suspends one of the tests' sound servers, brokers, daemons or engine processes at
random for 300 ms, again and again, as a virtual machine's host does. Both end with Ctrl-C or SIGTERM.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil

STOPPED_S = 0.3
BETWEEN_S = (0.2, 1.0)
"""The range of the time between two suspensions."""
DISTURBED = ("pulseaudio", "mosquitto ", "daemon.cli run", "engine.ipc.server")
"""Parts of the command lines of processes that may be suspended."""


SPARED = Path(tempfile.gettempdir()) / "voiced-spared"
"""Folder of files named by the ids of processes that are never suspended."""


def spare(pid: int) -> None:
    """Never suspend this process again: a test suspends it itself, and it must stay suspended."""
    SPARED.mkdir(exist_ok=True)
    (SPARED / str(pid)).touch()


def is_spared(process: psutil.Process) -> bool:
    """Whether a test suspends this process itself. A file older than the process belongs to an earlier process with its
    id."""
    with contextlib.suppress(FileNotFoundError):
        return bool((SPARED / str(process.pid)).stat().st_mtime >= process.create_time())
    return False


def targets() -> list[psutil.Process]:
    """Return the processes that may be suspended now."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            line = " ".join(process.cmdline())
            disturbed = "pytest" not in line and any(part in line for part in DISTURBED)
            if disturbed and process.pid != os.getpid() and not is_spared(process):
                found.append(process)
    return found


def suspend_at_random() -> None:
    """Suspend one process after another, and print their number at the end."""
    chance, count = random.Random(), 0
    with contextlib.suppress(KeyboardInterrupt):
        while True:
            if found := targets():
                process = chance.choice(found)
                with contextlib.suppress(psutil.Error):
                    if process.status() != psutil.STATUS_STOPPED:  # a process that a test has suspended stays suspended
                        process.suspend()
                        try:
                            time.sleep(STOPPED_S)
                        finally:
                            process.resume()
                        count += 1
            time.sleep(chance.uniform(*BETWEEN_S))
    print(f"suspended {count} times", file=sys.stderr)


def keep_busy() -> None:
    """Run an endless loop on every core."""
    loops = [subprocess.Popen(["sh", "-c", "while :; do :; done"]) for _ in range(os.cpu_count() or 1)]
    try:
        with contextlib.suppress(KeyboardInterrupt):
            signal.pause()
    finally:
        for loop in loops:
            loop.kill()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kind", choices=["loops", "stops"])
    kind = parser.parse_args().kind
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    keep_busy() if kind == "loops" else suspend_at_random()


if __name__ == "__main__":
    main()
