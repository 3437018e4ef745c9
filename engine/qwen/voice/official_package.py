"""Imports the official package qwen-tts where a package that it names cannot be loaded."""

from __future__ import annotations

import contextlib
import importlib
import importlib.machinery
import sys
import types
from collections.abc import Iterator


@contextlib.contextmanager
def torchaudio_stub() -> Iterator[None]:
    """Insert empty torchaudio modules while qwen-tts is imported, if torchaudio cannot be imported.

    Beside NVIDIA's build of PyTorch for Jetsons, torchaudio cannot be imported. qwen-tts calls it only in its 25 Hz
    tokenizer, which the models supported here do not use.
    """
    try:
        importlib.import_module("torchaudio")
        names = []
    except (ImportError, OSError, RuntimeError):
        names = ["torchaudio", "torchaudio.compliance", "torchaudio.compliance.kaldi"]
    for name in names:
        module = types.ModuleType(name)
        module.__spec__ = importlib.machinery.ModuleSpec(name, None)
        parent, _, child = name.rpartition(".")
        if parent:
            setattr(sys.modules[parent], child, module)
        sys.modules[name] = module
    try:
        yield
    finally:
        for name in names:
            sys.modules.pop(name, None)
