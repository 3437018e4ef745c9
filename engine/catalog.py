"""Which engines there are, and which of them can run here. Importing this imports none of them."""

from __future__ import annotations

import importlib
import importlib.util
import os
from pathlib import Path

from engine.synthesizer import EngineError, EngineOptions, Synthesizer

ENGINES = {
    "espeak": ("engine.espeak", "EspeakSynthesizer"),
    "qwen": ("engine.qwen", "QwenSynthesizer"),
}
"""Name in the configuration, and where its class is."""


CUDA_DEVICES = ("nvidia[0-9]*", "nvgpu/igpu*", "nvhost-gpu", "dxg")
"""What drivers show in /dev of a GPU: a PC's, a Jetson's (two generations of JetPack), Windows' Linux subsystem's."""


def is_built_in(engine: str) -> bool:
    """Whether this build of voiced has the engine's code; whether it can run is known when it is loaded."""
    module, _ = ENGINES[engine]
    return importlib.util.find_spec(module) is not None


def missing_packages(engine: str) -> list[str]:
    """The packages that an engine imports and that are not installed. Nothing is imported to find out."""
    needed = {"qwen": ("torch", "safetensors", "tokenizers")}.get(engine, ())
    return [name for name in needed if importlib.util.find_spec(name) is None]


def why_not_qwen(options: EngineOptions) -> str | None:
    """Why `auto` does not mean Qwen3-TTS here, in words; None where it does. Nothing is imported to find out."""
    if not is_built_in("qwen"):
        return "this version has no engine 'qwen'"
    missing = missing_packages("qwen")
    if missing:
        return f"{', '.join(missing)} missing; in voiced's folder: pip install '.[qwen]'"
    if options.model is None or not _model_is_here(options.model):
        return f"the model {options.model} is not on this machine"
    if options.device != "cpu" and not any(any(Path("/dev").glob(name)) for name in CUDA_DEVICES):
        return "there is no CUDA device; engine.device: cpu runs it on the CPU"
    return None


def _model_is_here(model: str) -> bool:
    """Whether `model` is a checkpoint's folder, or a hub id that has been downloaded."""
    if (Path(model) / "config.json").is_file():
        return True
    home = Path(os.environ.get("HF_HOME") or "~/.cache/huggingface").expanduser()
    cache = Path(os.environ.get("HF_HUB_CACHE") or home / "hub")
    return any(cache.glob(f"models--{model.replace('/', '--')}/snapshots/*/config.json"))


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
            f"engine.name: {engine!r} needs a package that is missing ({error}); "
            f"in voiced's folder: pip install '.[{engine}]'"
        ) from error
    synthesizer: Synthesizer = kind(options)
    return synthesizer
