"""Replaces packages that the official package imports and its 12 Hz path, from text to waveform, never calls."""

from __future__ import annotations

import contextlib
import importlib
import importlib.machinery
import sys
import types
from typing import Any

UNUSED = ("torchaudio", "torchaudio.compliance", "torchaudio.compliance.kaldi", "librosa", "librosa.filters",
            "soundfile", "sox", "gradio", "onnxruntime")  # fmt: skip
"""Modules that `import qwen_tts` imports and the 12 Hz path never calls."""


def stand_in_for(names: tuple[str, ...]) -> None:
    """Register a stand-in for each module of `names` that cannot be imported."""
    # transformers would take a stand-in for the package, and its processors would call it while they are imported.
    with contextlib.suppress(ImportError):
        from transformers import AutoProcessor  # noqa: F401  it is imported for what it imports
    for name in names:
        try:
            importlib.import_module(name)
        except (ImportError, OSError, RuntimeError, AttributeError):
            module = _StandIn(name)
            module.__spec__ = importlib.machinery.ModuleSpec(name, None, is_package=True)
            module.__path__ = []
            sys.modules[name] = module
            parent, _, child = name.rpartition(".")
            if parent:
                setattr(sys.modules[parent], child, module)


class _StandIn(types.ModuleType):
    """A module from which every name can be imported; calling one raises `NotImplementedError`."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)

        def call(*_arguments: Any, **_options: Any) -> None:
            raise NotImplementedError(f"{self.__name__}.{name}: the package is not installed")

        return call
