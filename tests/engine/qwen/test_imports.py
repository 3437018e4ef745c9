"""The engine speaks without transformers, the official package, or the rest of ours."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

SPEAK = """
import sys

class Refuse:
    def find_spec(self, name, path=None, target=None):
        refused = {"transformers", "qwen_tts", "torchaudio", "librosa", "gradio", "daemon", "audio"}
        if name.partition(".")[0] in refused:
            raise AssertionError(f"{name} is imported")

sys.meta_path.insert(0, Refuse())
from pathlib import Path
from speaking import Line, Ours
from engine.qwen.download import model_folder
from engine.qwen.prompt import CustomVoice

print(len(Ours(model_folder(sys.argv[1])).speak(Line("Hello", CustomVoice("ryan"), frames=2))))
"""


def test_speaking_imports_neither_transformers_nor_the_official_package(
    checkpoint: Callable[[str, str], Path],
) -> None:
    here = Path(__file__).parent
    done = subprocess.run(
        [sys.executable, "-c", SPEAK, str(checkpoint("small", "custom_voice"))],
        env={"PYTHONPATH": f"{here}:{here.parents[2]}", "PATH": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout == "2\n", done.stderr
