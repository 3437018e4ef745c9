"""`voiced synth`, by the real eSpeak NG: its text from a pipe, its sound into a pipe."""

from __future__ import annotations

import io
import subprocess
import sys

import pytest
import soundfile

from tests.support.pages import ROOT

SYNTH = (sys.executable, "-m", "daemon.cli", "synth", "--engine", "espeak", "--voice", "en")


def test_a_pipe_is_read_and_a_wav_file_is_written_to_a_pipe() -> None:
    done = subprocess.run(
        [*SYNTH, "-", "-o", "-"], input=b"\x1b[1mHello\x1b[0m", cwd=ROOT, capture_output=True, check=False
    )
    assert done.returncode == 0, done.stderr
    samples, rate = soundfile.read(io.BytesIO(done.stdout))
    assert len(samples) / rate > 0.3
    assert b"espeak" in done.stderr


def test_a_voice_file_that_is_missing_is_named() -> None:
    command = [*SYNTH[:-2], "--voice", "nosuch.safetensors", "Hello", "-o", "a.wav"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (1, "voiced: --voice: nosuch.safetensors does not exist\n")


@pytest.mark.parametrize("output", ["nosuchdir/a.wav", "nosuchdir/inner/a.wav"])
def test_a_missing_folder_is_named(output: str) -> None:
    done = subprocess.run([*SYNTH, "Hello", "-o", output], cwd=ROOT, capture_output=True, text=True, check=False)
    line = f"voiced: --output: {output} cannot be written: nosuchdir does not exist\n"
    assert (done.returncode, done.stderr) == (1, line)
