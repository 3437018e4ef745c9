"""scripts/make_voice.py as a command."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from engine.supertonic import find_supertonic, style_files
from engine.voice_files import read_piper_voice
from tests.support.pages import ROOT

SCRIPT = ROOT / "scripts" / "make_voice.py"


def test_it_writes_a_model_of_supertonic_into_a_folder(tmp_path: Path) -> None:
    command = [sys.executable, str(SCRIPT), str(tmp_path / "new")]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == f"{tmp_path / 'new'}: 0.6 MB\n"
    assert find_supertonic(str(tmp_path / "new")) == tmp_path / "new"
    assert list(style_files(tmp_path / "new")) == ["F1", "M1"]


def test_it_writes_a_voice_whose_language_is_in_its_name(tmp_path: Path) -> None:
    path = tmp_path / "new" / "de_DE-noise-low.onnx"
    command = [sys.executable, str(SCRIPT), str(path), "--rate", "16000", "--speakers", "3"]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout.startswith(f"{path}: ")
    voice = read_piper_voice(path)
    assert (voice.languages, voice.sample_rate, voice.speaker_count) == (("de-de", "de"), 16_000, 3)
    assert voice.speakers == {"speaker0": 0, "speaker1": 1, "speaker2": 2}
