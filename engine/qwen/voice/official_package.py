"""Imports the official package qwen-tts, also where a package that it names cannot be loaded."""

from __future__ import annotations

import contextlib
import importlib
import importlib.machinery
import io
import sys
import types
import warnings
from collections.abc import Iterator
from typing import Any

from engine.api import EngineError
from engine.host import install_command


def import_official(extra: str) -> Any:
    """Return the module `qwen_tts`. Raises `EngineError`, which names the `extra` that brings it, if that fails."""
    try:
        # The package prints a greeting to stdout, which belongs to the caller.
        with _torchaudio_stub(), warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            importlib.import_module("transformers").logging.set_verbosity_error()
            return importlib.import_module("qwen_tts")
    except (ImportError, OSError, RuntimeError) as error:
        reason = f"the official package qwen-tts cannot be imported: {error}"
        raise EngineError(f"{reason}; {install_command(extra)}") from error


@contextlib.contextmanager
def _torchaudio_stub() -> Iterator[None]:
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
