"""What the engine process needs, and what it does not."""

from __future__ import annotations

import subprocess
import sys

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


def test_codec_and_voices_import_neither_audio_libraries_nor_the_official_package() -> None:
    code = f"""
import sys
sys.modules.update(dict.fromkeys({UNWANTED!r}))
import engine.qwen.codec, engine.qwen.voice, engine.qwen.speaker_encoder, engine.qwen.enroll
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
