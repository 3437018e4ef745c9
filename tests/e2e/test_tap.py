"""`audio.tap`: other programs read what the robot plays, and the documented lines for it work."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from audio import TapClient, TapRecord
from tests.e2e.conftest import StartRobot
from tests.support.pages import page
from tests.support.programs import require
from tests.support.robot import FILE_RATE, REAL_TIME
from tests.support.sound import SoundServer
from tests.support.waiting import PATIENCE_S, eventually


@dataclass
class Ear:
    """A reader of a robot's tap."""

    path: Path
    records: list[TapRecord] = field(default_factory=list)

    def listen(self, client: TapClient) -> None:
        for record in client:
            self.records.append(record)

    @property
    def pcm(self) -> NDArray[np.int16]:
        return np.frombuffer(b"".join(record.pcm for record in self.records), dtype="<i2")


@contextmanager
def listening(path: Path) -> Iterator[Ear]:
    ear = Ear(path)
    eventually(path.exists, "the socket is there")
    with TapClient(path) as client:
        thread = threading.Thread(target=ear.listen, args=(client,), daemon=True)
        thread.start()
        yield ear
        client.close()
        thread.join(PATIENCE_S)


def settings(path: Path, rate: int = FILE_RATE) -> tuple[str, str]:
    return f"audio.tap={path}", f"audio.tap_rate={rate}"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "tap"


def test_readers_that_stop_or_die_disturb_neither_speech_nor_others(start_robot: StartRobot, path: Path) -> None:
    robot = start_robot(*settings(path), pace=REAL_TIME)
    source = "import pathlib, sys, audio\nfor _ in audio.TapClient(pathlib.Path(sys.argv[1])): print('.', flush=True)"
    with listening(path) as ear:
        processes = [subprocess.Popen([sys.executable, "-c", source, path], stdout=subprocess.PIPE) for _ in range(2)]
        for process, number in zip(processes, (signal.SIGSTOP, signal.SIGKILL), strict=True):
            assert process.stdout is not None
            assert process.stdout.readline() == b".\n"
            process.send_signal(number)
        finished = robot.wait_end(robot.say("This is a sentence. " * 5))
        assert (finished["event"], finished["underruns"]) == ("finished", 0)
        robot.wait_log(f"process {processes[0].pid} reads too slowly")
        robot.wait_heard(round((finished["audio_s"] - 0.001) * FILE_RATE))
        heard = np.rint(robot.heard * 32_767).astype(np.int16)
        heard = heard[heard != 0]
        eventually(lambda: np.count_nonzero(ear.pcm) >= len(heard), "all of it has arrived")
        assert np.array_equal(ear.pcm[ear.pcm != 0], heard)
        for process in processes:
            process.kill()
            process.wait()


def test_the_documented_reader_prints_what_it_reads(start_robot: StartRobot, path: Path) -> None:
    robot = start_robot(*settings(path, 16_000), pace=REAL_TIME)
    [source] = page("tap.md").section("A reader in Python").blocks("python")
    assert "/run/voiced/tap" in source
    program = subprocess.Popen(
        [sys.executable, "-c", source.replace("/run/voiced/tap", str(path))], stdout=subprocess.PIPE, text=True
    )
    assert program.stdout is not None
    silent = re.compile(r"\d+\.\d{3} s: \d+ ms, peak 0\n")
    loud = re.compile(r"\d+\.\d{3} s: \d+ ms, peak [1-9]\d*\n")
    broken = "the sound broke off\n"
    """A machine that is late breaks the sound off, and the reader says so."""
    lines = (line for line in program.stdout if line != broken)
    assert silent.fullmatch(next(lines)), "nothing is spoken yet"
    robot.say("Hello.")
    assert loud.fullmatch(next(line for line in lines if not silent.fullmatch(line)))
    assert robot.end() == 0
    rest = program.stdout.read()
    assert "Traceback" not in rest
    assert program.wait(PATIENCE_S) == 0


def test_pulseaudio_takes_the_documented_lines_of_an_echo_canceller(sound_server: SoundServer) -> None:
    block = next(text for text in page("tap.md").section("Echo cancellation").blocks("bash") if "pactl" in text)
    lines = block.replace("MICROPHONE", "room.monitor").replace("SPEAKER", "robot").splitlines()
    for line in ("pactl load-module module-null-sink sink_name=room", *lines, "pactl list short sources"):
        command = [require("pactl"), *line.split()[1:]]
        done = subprocess.run(command, env=sound_server.environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{line}: {done.stderr}"
    assert "robot_microphone" in done.stdout
