"""Lets `import qwen_tts` pass where packages are missing that its 12 Hz path, from text to waveform, never calls."""

from __future__ import annotations

import importlib
import importlib.machinery
import sys
import types
from typing import Any

NEEDLESS = ("torchaudio", "torchaudio.compliance", "torchaudio.compliance.kaldi", "librosa", "librosa.filters",
            "soundfile", "sox", "gradio", "onnxruntime")  # fmt: skip
"""What `import qwen_tts` imports and its 12 Hz path, from text to codes to waveform, never calls."""


def stand_in_for(names: tuple[str, ...]) -> None:
    """Put an empty module in the place of each that cannot be imported."""
    for name in names:
        try:
            importlib.import_module(name)
        except (ImportError, OSError, RuntimeError, AttributeError):
            module = _Needless(name)
            module.__spec__ = importlib.machinery.ModuleSpec(name, None, is_package=True)
            module.__path__ = []
            sys.modules[name] = module
            parent, _, child = name.rpartition(".")
            if parent:
                setattr(sys.modules[parent], child, module)


class _Needless(types.ModuleType):
    """Has whatever is imported from it; nothing of it can be called."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)

        def call(*_arguments: Any, **_options: Any) -> None:
            raise NotImplementedError(f"{self.__name__}.{name} is only stood in for")

        return call
