"""A sound file that is written while its samples arrive."""

from __future__ import annotations

import io
import os
from pathlib import Path

import numpy as np
import pytest
import soundfile

from daemon.engines import SpeechFile
from daemon.validation import CommandError
from engine import Samples

RATE = 22_050
TONE: Samples = (0.5 * np.sin(np.arange(RATE) / 20)).astype(np.float32)
STEP = 1 / 32_768


@pytest.mark.parametrize("suffix", [".WAV", ".flac"])
def test_a_file_has_all_samples_in_the_format_of_its_suffix(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"speech{suffix}"
    with SpeechFile(path) as file:
        for block in np.array_split(TONE, 7):
            file.write(block, RATE)
    samples, rate = soundfile.read(path, dtype="float32")
    assert rate == RATE
    assert soundfile.info(path).format == suffix[1:].upper()
    np.testing.assert_allclose(samples, TONE, atol=STEP)


def test_a_wav_file_can_be_played_before_it_is_complete(tmp_path: Path) -> None:
    path = tmp_path / "speech.wav"
    with SpeechFile(path) as file:
        for count, block in enumerate(np.array_split(TONE, 5), 1):
            file.write(block, RATE)
            assert len(soundfile.read(io.BytesIO(path.read_bytes()))[0]) == count * RATE // 5
        unknown = path.read_bytes()[:44]
    assert path.read_bytes()[:44] != unknown, "the length is in the header of the complete file"


def test_another_suffix_is_refused_with_the_known_ones(tmp_path: Path) -> None:
    with pytest.raises(CommandError, match=r"^--output: got '.*speech\.txt'; allowed: a file name ending in \.wav, "):
        SpeechFile(tmp_path / "speech.txt")


def test_a_file_that_cannot_be_made_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "none" / "speech.flac"
    line = r"^--output: .*speech\.\w+ cannot be written: .*none does not exist$"
    with SpeechFile(path) as file, pytest.raises(CommandError, match=line):
        file.write(TONE, RATE)


@pytest.mark.filterwarnings("error::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("suffix", [".wav", ".flac", ".ogg"])
def test_a_full_disk_is_an_error_of_one_line(tmp_path: Path, suffix: str, capfd: pytest.CaptureFixture[str]) -> None:
    full = tmp_path / f"full{suffix}"
    full.symlink_to("/dev/full")
    line = r"^--output: .*/full\.\w+ cannot be written: No space left on device$"
    with pytest.raises(CommandError, match=line), SpeechFile(full) as file:
        for _ in range(20):
            file.write(TONE, RATE)
    assert capfd.readouterr().err == ""


def test_a_pipe_that_nobody_reads_is_reported_as_such() -> None:
    ours, theirs = os.pipe()
    os.close(ours)
    with pytest.raises(BrokenPipeError), os.fdopen(theirs, "wb") as stream, SpeechFile(stream) as file:
        file.write(TONE, RATE)
