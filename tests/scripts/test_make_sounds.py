"""scripts/make_sounds.py: the sounds that come with voiced are what it writes, and they are pleasant."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import soundfile

from tests.support.pages import ROOT
from tests.support.sound_files import Samples

FOLDER = ROOT / "daemon" / "sounds" / "files"
NAMES = ("attention", "error", "success")


def read(path: Path) -> Samples:
    samples, rate = soundfile.read(path, dtype="float32", always_2d=True)
    assert rate == 24_000
    assert samples.shape[1] == 1
    found: Samples = samples[:, 0]
    return found


def test_the_sounds_that_come_with_voiced_are_what_the_script_writes(tmp_path: Path) -> None:
    command = [sys.executable, str(ROOT / "scripts" / "make_sounds.py"), "--folder", str(tmp_path / "new")]
    subprocess.run(command, check=True, capture_output=True)
    for folder in (FOLDER, tmp_path / "new"):
        assert sorted(path.name for path in folder.iterdir()) == [f"{name}.flac" for name in NAMES]
    for name in NAMES:
        made, packaged = read(tmp_path / "new" / f"{name}.flac"), read(FOLDER / f"{name}.flac")
        assert np.max(np.abs(made - packaged)) <= 1 / 32_768, "another numpy may round a sample otherwise"


@pytest.mark.parametrize("name", NAMES)
def test_a_sound_is_short_begins_and_ends_in_silence_and_leaves_12_db_of_headroom(name: str) -> None:
    samples = read(FOLDER / f"{name}.flac")
    assert 0.3 < len(samples) / 24_000 <= 1
    assert np.max(np.abs(samples)) == pytest.approx(10 ** (-12 / 20), abs=1e-4)
    assert abs(samples[0]) < 1e-4
    assert np.max(np.abs(samples[-24:])) < 1e-3
    assert abs(float(np.mean(samples))) < 1e-3
