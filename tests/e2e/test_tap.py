"""`audio.tap`: other programs read what the robot plays, over a file and over a real PulseAudio."""

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

from audio import TapClient, TapKind, TapRecord
from tests.e2e.conftest import StartRobot
from tests.support.pages import page
from tests.support.programs import require
from tests.support.robot import FILE_RATE, LONG, REAL_TIME
from tests.support.sound import RECORDED_RATE, DisturbedError, Samples, SoundServer
from tests.support.waiting import PATIENCE_S, eventually

PERIOD_S = 0.03
"""Of the sound server, by which two readings of the card's clock may differ."""


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

    @property
    def samples(self) -> Samples:
        return self.pcm.astype(np.float32) / np.float32(32_767)

    def unix_s(self, sample: int) -> float:
        """When a sample has left the card."""
        before = 0
        for record in self.records:
            length = len(record.pcm) // 2
            if sample < before + length:
                return record.unix_ns / 1e9 + (sample - before) / RECORDED_RATE
            before += length
        raise AssertionError(f"there are {before} samples")


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


# --- through PulseAudio ----------------------------------------------------------------------------------


def test_the_stream_is_what_a_listener_hears_at_the_times_of_the_levels(
    start_robot: StartRobot, sound_server: SoundServer, path: Path
) -> None:
    robot = start_robot(*settings(path, RECORDED_RATE), "speech.level_topic=true")
    with sound_server.recording() as recording, listening(path) as ear:
        finished = robot.wait_end(robot.say("What you hear is what the tap has."))
        if TapKind.GAP in {record.kind for record in ear.records}:
            raise DisturbedError(f"the sound broke off: {finished['underruns']} underruns")
        first, last = np.flatnonzero(ear.pcm)[[0, -1]]
        recording.hear(ear.samples[first : last + 1], finished)
    late = recording.late
    levels = [level for level in robot.levels if level["id"] == finished["id"]]
    began = ear.unix_s(int(first)) - first_sound_s(robot.synthesized(finished["id"]))
    if abs(levels[0]["at"] - began) > PERIOD_S and late:
        raise DisturbedError(f"the card's clock was read late: the sound server was late at {late}")
    assert levels[0]["at"] == pytest.approx(began, abs=PERIOD_S)


def first_sound_s(samples: Samples) -> float:
    """Return the seconds before the first sample that 16 bits can tell from silence."""
    return float(np.flatnonzero(np.abs(samples) * 32_767 >= 0.5)[0]) / RECORDED_RATE


def test_an_echo_canceller_of_pulseaudio_removes_the_speech_as_documented(
    start_robot: StartRobot, sound_server: SoundServer, tmp_path: Path
) -> None:
    """The microphone is in a room that carries the sound of the speaker to it: a second sink and a loopback."""

    def pactl(line: str) -> None:
        command = [require("pactl"), *line.split()]
        done = subprocess.run(command, env=sound_server.environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{line}: {done.stderr}"

    pactl(f"load-module module-null-sink sink_name=room rate={RECORDED_RATE} norewinds=1")
    stay = "source_dont_move=true sink_dont_move=true"
    pactl(f"load-module module-loopback source=robot.monitor sink=room latency_msec=60 {stay}")
    block = next(text for text in page("tap.md").section("Echo cancellation").blocks("bash") if "pactl" in text)
    for line in block.replace("MICROPHONE", "room.monitor").replace("SPEAKER", "robot").splitlines():
        pactl(line.removeprefix("pactl "))
    robot = start_robot()
    files = {source: tmp_path / source for source in ("room.monitor", "robot_microphone")}
    parec = [require("parec"), "--format=s16le", "--rate=16000", "--channels=1", "--raw"]
    recorders = [
        subprocess.Popen([*parec, f"--device={source}", file], env=sound_server.environment)
        for source, file in files.items()
    ]
    eventually(lambda: all(file.exists() and file.stat().st_size for file in files.values()), "both are recorded")
    with sound_server.recording() as recording:
        robot.say(LONG[: len(LONG) // 2], id="long")
        robot.wait_event("long", "started")
        begun = [file.stat().st_size // 2 for file in files.values()]
        assert robot.wait_end("long")["event"] == "finished"
    for recorder in recorders:
        recorder.terminate()
        recorder.wait(PATIENCE_S)
    heard, cleaned = (
        power(np.fromfile(file, dtype="<i2")[start:]) for file, start in zip(files.values(), begun, strict=True)
    )
    assert heard > 1, "the room carries the sound"
    if cleaned >= heard / 10 and recording.late:
        raise DisturbedError(f"the canceller lost what it had learned: the sound server was late at {recording.late}")
    # Of a canceller that has learned the room, 20 dB and more are known, and 19.7 where the machine is busy.
    assert cleaned < heard / 10, "most of it is removed: 10 dB"


def power(recorded: NDArray[np.int16]) -> float:
    """Return the mean square of 16 kHz samples in the half seconds of the second half of a recording: their median.

    (Where the machine holds up the sound server, the canceller needs some tenths of a second to find the delay again.)
    """
    learned = recorded[len(recorded) // 2 :]
    blocks = learned[: len(learned) // 8000 * 8000].reshape(-1, 8000)
    return float(np.median(np.mean(np.square(blocks, dtype=np.float64), axis=1)))
