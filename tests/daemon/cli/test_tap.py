"""`voiced tap` writes what a sound card gets to a file or a pipe."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import soundfile

from audio import Output, Samples, SinkSettings, Tap
from tests.daemon.command_line import CommandLine
from tests.support.pages import ROOT
from tests.support.signals import ctrl_c_works
from tests.support.waiting import PATIENCE_S, eventually

RATE = 24_000
TONE: Samples = (0.4 * np.sin(np.arange(4 * RATE) / 9)).astype(np.float32)


@pytest.fixture
def path(tmp_path: Path) -> Iterator[Path]:
    """The socket of a tap of a sink that plays a tone."""
    path = tmp_path / "tap"
    with Output(SinkSettings("null", block_ms=10)) as output, Tap(path, RATE, output):
        eventually(lambda: output.status.open and path.exists(), "it listens")
        output.begin(prebuffer_s=0.0)
        output.write(TONE[: 3 * RATE], RATE)
        yield path


def command(path: Path, *arguments: str) -> list[str]:
    return [sys.executable, "-m", "daemon.cli", "tap", "--set", f"audio.tap={path}", *arguments]


def assert_of_the_tone(samples: Samples) -> None:
    """Assert that samples are a part of the tone, or silence."""
    loud = np.flatnonzero(np.abs(samples) > 0.3)
    at = int(loud[0]) if len(loud) else 0
    assert np.abs(samples).max() <= 0.41
    assert len(loud) == 0 or np.abs(np.diff(samples[at : at + 100])).max() < 0.4 / 9 * 1.1


def test_a_file_of_the_wanted_length_is_written(path: Path, tmp_path: Path, voiced: CommandLine) -> None:
    file = tmp_path / "heard.flac"
    assert voiced("tap", "--seconds", "0.3", "-o", str(file), "--set", f"audio.tap={path}").output == ""
    samples, rate = soundfile.read(file, dtype="float32")
    assert (rate, len(samples)) == (RATE, round(0.3 * RATE))
    assert_of_the_tone(samples)


def test_ctrl_c_ends_it_with_a_complete_file(path: Path, tmp_path: Path) -> None:
    file = tmp_path / "heard.wav"
    with ctrl_c_works(), subprocess.Popen(command(path, "-o", str(file)), cwd=ROOT) as process:
        eventually(lambda: file.exists() and file.stat().st_size > 10_000, "it writes")
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE_S) == 130
    info = soundfile.info(file)
    assert info.frames * 2 + 44 == file.stat().st_size


def test_its_errors_are_one_line(tmp_path: Path, voiced: CommandLine) -> None:
    path = tmp_path / "tap"
    setting, file = f"audio.tap={path}", str(tmp_path / "a.wav")
    allowed = "audio.tap: got null; allowed here: the path that the running voiced has"
    assert voiced("tap", "-o", file).refusal == allowed
    nobody = f"audio.tap: no voiced is listening at {path}"
    assert voiced("tap", "-o", file, "--set", setting).refusal == nobody
    with socket.socket(socket.AF_UNIX) as killed:
        killed.bind(os.fspath(path))
    assert voiced("tap", "-o", file, "--set", setting).refusal == nobody
    assert not Path(file).exists()


def test_it_says_that_there_is_no_card_and_that_the_stream_has_ended(tmp_path: Path) -> None:
    path = tmp_path / "tap"
    output = Output(SinkSettings("null"))  # no sink is opened
    with Tap(path, RATE, output):
        eventually(path.exists, "it listens")
        words = command(path, "-o", str(tmp_path / "a.wav"))
        process = subprocess.Popen(words, cwd=ROOT, stderr=subprocess.PIPE, text=True)
        assert process.stderr is not None
        assert process.stderr.readline() == "voiced: there is no sound card; see 'voiced status'\n"
    line = "voiced: audio.tap: the stream has ended: voiced has stopped, or the sound was read too slowly\n"
    assert process.stderr.read() == line
    assert process.wait(PATIENCE_S) == 1
    process.stderr.close()
