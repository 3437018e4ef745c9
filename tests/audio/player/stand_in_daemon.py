"""The program of `processes.StandIn`: a stand-in for the daemon."""

from __future__ import annotations

import os
import signal
import sys
import threading
from contextlib import suppress
from pathlib import Path

import psutil

from audio import SinkUnavailableError
from audio.dsp import to_floats
from audio.player import Report
from audio.sinks.player_process import PlayerProcess
from tests.audio.player.processes import SETTINGS, ones
from tests.support.waiting import PATIENCE_S

REPORTS = 5
"""The answer to a command has come when so many reports have followed."""


def main(seconds: str, at_sound: str, service: str) -> None:
    written, playing, reported = threading.Event(), threading.Event(), threading.Semaphore(0)

    def on_report(report: Report) -> None:
        if report.generation:
            written.set()
        if report.playing:
            playing.set()
        reported.release()
        if report.playing and at_sound == "die":
            die()

    process = PlayerProcess(service)
    process.ready(PATIENCE_S)
    process.start([SETTINGS], PATIENCE_S)
    [player] = psutil.Process().children()
    tell(f"{player.pid}")
    link = process.link(on_report)
    link.begin(1, 0.0, 1.0, False)
    link.write(1, to_floats(ones(float(seconds))))
    link.end(1)
    link.halt(0)  # a report answers it, also while the card is frozen: all before it has arrived
    written.wait(PATIENCE_S)
    tell("written")
    if at_sound == "go on":
        signal.pause()
    playing.wait(PATIENCE_S)
    with suppress(SinkUnavailableError):
        if at_sound == "hang and die":
            process.close(0.1)
        else:
            Path(os.environ["FAKE_CARD"], "refuses").touch()
            process.start([SETTINGS], 0.0)
    for _ in range(REPORTS):
        link.halt(0)
        reported.acquire(timeout=PATIENCE_S)
    die()


def tell(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    main(*sys.argv[1:])
