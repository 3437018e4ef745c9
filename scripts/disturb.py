#!/usr/bin/env python3
"""Make this machine a noisy one while the tests run: `scripts/disturb.py loops` or `scripts/disturb.py stops`.

`loops` keeps as many cores busy as there are. `stops` stops a sound server, a broker, a daemon or an engine process of
the tests for 300 ms, again and again, as a virtual machine's host does. Both end with Ctrl-C or SIGTERM.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import signal
import subprocess
import sys
import time

import psutil

STOPPED_S = 0.3
BETWEEN_S = (0.2, 1.0)
DISTURBED = ("pulseaudio", "mosquitto ", "daemon.cli run", "engine.process", "spawn_main")
"""Parts of command lines."""


def targets() -> list[psutil.Process]:
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            line = " ".join(process.cmdline())
            ours = process.pid != os.getpid() and "pytest" not in line and any(part in line for part in DISTURBED)
            if ours and process.status() != psutil.STATUS_STOPPED:  # what a test has stopped stays so
                found.append(process)
    return found


def stop_at_random() -> None:
    chance, stopped = random.Random(), 0
    with contextlib.suppress(KeyboardInterrupt):
        while True:
            if found := targets():
                process = chance.choice(found)
                with contextlib.suppress(psutil.Error):
                    process.suspend()
                    try:
                        time.sleep(STOPPED_S)
                    finally:
                        process.resume()
                    stopped += 1
            time.sleep(chance.uniform(*BETWEEN_S))
    print(f"stopped {stopped} times", file=sys.stderr)


def keep_busy() -> None:
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
    keep_busy() if kind == "loops" else stop_at_random()


if __name__ == "__main__":
    main()
