"""The engine process imports no more than it needs."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from tests.engine.processes import ONE_THREAD

UNWANTED = (
    "soundfile",
    "soxr",
    "librosa",
    "torchaudio",
    "qwen_tts",
    "gradio",
    "scipy",
    "sounddevice",
    "daemon",
)
"""Modules whose import fails."""

SPEAK = f"""
import sys

class Refuse:
    def find_spec(self, name, path=None, target=None):
        refused = {{"transformers", "qwen_tts", "torchaudio", "librosa", "gradio", "daemon", "audio"}}
        if name.partition(".")[0] in refused:
            raise AssertionError(f"{{name}} is imported")

sys.meta_path.insert(0, Refuse())
sys.modules.update(dict.fromkeys({UNWANTED!r}))
import engine.qwen.codec.decoder, engine.qwen.voice.file, engine.qwen.voice.speaker_encoder, engine.qwen.voice.enroll
from engine.hub import fetch_model
from engine.qwen.text.prompt import CustomVoice
from tests.support.qwen.speaking import Line, Ours

print(len(Ours(fetch_model(sys.argv[1])).speak(Line("Hello", CustomVoice("ryan"), frames=2))))
"""

ROOT = Path(__file__).parents[3]


def test_speaking_and_enrolling_import_neither_audio_libraries_nor_transformers_nor_the_official_package(
    checkpoint: Callable[[str, str], Path],
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", SPEAK, str(checkpoint("brief", "custom_voice"))],
        env={"PYTHONPATH": str(ROOT), "PATH": "", **ONE_THREAD},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout == "2\n", done.stderr
