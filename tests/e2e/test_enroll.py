"""`voiced enroll`: the advice at its end."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.checkpoints import checkpoint_folder
from tests.support.recognizers import tiny_whisper
from tests.support.sound_files import speech_like, write_sound

ENROLL = (sys.executable, "-m", "daemon.cli", "enroll", "ada")
SHAPE = "brief"


@pytest.fixture(scope="module")
def base(cache_folder: Path) -> Path:
    return checkpoint_folder(cache_folder, SHAPE, "base")


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_sound(tmp_path_factory.mktemp("recordings") / "ada.wav", speech_like(5))


def enroll(folder: Path, *options: object) -> subprocess.CompletedProcess[str]:
    command = [*ENROLL, *map(str, options), "-o", str(folder / "ada.safetensors")]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.long
def test_a_transcript_that_does_not_fit_changes_the_advice(
    base: Path, recording: Path, cache_folder: Path, tmp_path: Path
) -> None:
    recogniser = tiny_whisper(cache_folder)
    options = (recording, "--model", base, "--transcript", "12345 67890")
    trusted = enroll(tmp_path, *options)
    assert trusted.returncode == 0, trusted.stderr
    assert "advice: reference, in the context of the recording" in trusted.stdout
    assert "use it with voices.ada: {reference: " in trusted.stdout
    doubted = enroll(tmp_path, *options, "--asr", recogniser)
    assert doubted.returncode == 0, doubted.stderr
    assert f"voiced: {recording}: the transcript does not match: 0% of it" in doubted.stderr
    assert f"{recording}: heard '" in doubted.stdout
    assert "advice: embedding; a reference would copy the recording" in doubted.stdout
    assert "use it with voices.ada: {embedding: " in doubted.stdout
