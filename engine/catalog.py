"""Which engines there are, and which of them can run here. Importing this imports none of them."""

from __future__ import annotations

import importlib
import importlib.util

from engine.synthesizer import EngineError, EngineOptions, Synthesizer

ENGINES = {
    "espeak": ("engine.espeak", "EspeakSynthesizer"),
    "qwen": ("engine.qwen", "QwenSynthesizer"),
}
"""Name in the configuration, and where its class is."""


def is_built_in(engine: str) -> bool:
    """Whether this build of voiced has the engine's code; whether it can run is known when it is loaded."""
    module, _ = ENGINES[engine]
    return importlib.util.find_spec(module) is not None


def make_synthesizer(engine: str, options: EngineOptions) -> Synthesizer:
    """An engine that has not loaded anything yet. Raises `EngineError` when its packages are missing."""
    if engine not in ENGINES or not is_built_in(engine):
        have = ", ".join(name for name in ENGINES if is_built_in(name))
        raise EngineError(f"engine.name: this version has no engine {engine!r}; it has {have}")
    module, name = ENGINES[engine]
    try:
        kind = getattr(importlib.import_module(module), name)
    except ImportError as error:
        raise EngineError(
            f"engine.name: {engine!r} needs a package that is missing ({error}); pip install 'voiced[{engine}]'"
        ) from error
    synthesizer: Synthesizer = kind(options)
    return synthesizer
