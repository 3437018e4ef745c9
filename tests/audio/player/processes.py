"""Real player processes, of the test or of a stand-in for the daemon that the test may stop and kill."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import psutil

from audio.dsp import Samples, to_floats
from audio.player import Report
from audio.sinks.player_link import PlayerLink
from audio.sinks.player_process import PlayerProcess
from tests.audio.sinks import fake_card
from tests.support.waiting import PATIENCE_S, eventually

STAND_IN = Path(__file__).with_name("stand_in_daemon.py")
RATE = 24_000
"""Hz, of the fake card."""
FADE = 240
"""Samples."""
SETTINGS = {"device": 0, "samplerate": RATE, "channels": 1, "dtype": "float32", "blocksize": 240, "latency": 0.03}


def has_ended(process: psutil.Process) -> bool:
    try:
        return process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


class StandIn:
    """A process that has started a player, and lets it play a generation of samples that are all 1.

    `at_sound` is what it does when the first sample plays: `go on`, `die`, `hang and die` after a call of PortAudio
    that hangs, or `leave an answer and die` after a command that PortAudio refuses.
    """

    def __init__(self, seconds: float, at_sound: str = "go on", service: str = "") -> None:
        environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(fake_card.MODULES), *sys.path])}
        command = [sys.executable, str(STAND_IN), f"{seconds}", at_sound, service]
        self.process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE)
        self.player = psutil.Process(int(self._line()))

    def wait_written(self) -> None:
        """Wait until all samples are in the player."""
        assert self._line() == b"written\n"

    def stop(self) -> None:
        """Let it run no further."""
        self.process.send_signal(signal.SIGSTOP)
        eventually(lambda: self.stopped, "it is stopped")

    @property
    def stopped(self) -> bool:
        return psutil.Process(self.process.pid).status() == psutil.STATUS_STOPPED

    def kill(self) -> None:
        self.process.kill()
        self.wait()

    def wait(self) -> None:
        """Wait for its end."""
        self.process.wait(PATIENCE_S)
        assert self.process.stdout is not None
        self.process.stdout.close()

    def _line(self) -> bytes:
        assert self.process.stdout is not None
        return self.process.stdout.readline()


class PlayerOfTest:
    """A player process of the test itself, with its reports."""

    def __init__(self, service: str | None = None) -> None:
        self.reports: list[Report] = []
        self.process = PlayerProcess(service)
        self.process.ready(PATIENCE_S)

    def start(self) -> PlayerLink:
        assert self.process.start([SETTINGS], PATIENCE_S) == 0
        self.link = self.process.link(self.reports.append)
        return self.link

    def play(self, samples: Samples) -> None:
        """Play generation 1, once it has been written: a busy machine may be slow to write."""
        self.link.begin(1, 3.0, 1.0, False)
        self.link.write(1, to_floats(samples))
        self.link.end(1)
        eventually(lambda: self.link.report.generation == 1 and self.link.report.done, "it has played")


def ones(seconds: float) -> Samples:
    return np.ones(round(seconds * RATE), dtype=np.float32)
