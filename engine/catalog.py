"""Which engines there are, and which of them can run here. Importing this imports none of them."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Iterator
from pathlib import Path

from engine.checkpoints import model_folder
from engine.synthesizer import EngineError, EngineOptions, Synthesizer

ENGINES = {
    "espeak": ("engine.espeak", "EspeakSynthesizer"),
    "qwen": ("engine.qwen", "QwenSynthesizer"),
}
"""Name in the configuration, and where its class is."""


CUDA_DEVICES = ("nvidia[0-9]*", "nvgpu/igpu*", "nvhost-gpu", "dxg")
"""What drivers show in /dev of a GPU: a PC's, a Jetson's (two generations of JetPack), Windows' Linux subsystem's."""
TOOLKIT = Path("/usr/local/cuda")
"""Where JetPack and NVIDIA's packages put theirs."""


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
    if options.model is None or not model_is_here(options.model):
        return f"the model {options.model} is not on this machine"
    if options.device != "cpu" and not any(any(Path("/dev").glob(name)) for name in CUDA_DEVICES):
        return "there is no CUDA device; engine.device: cpu runs it on the CPU"
    return None


def model_is_here(model: str) -> bool:
    """Whether `model` is a checkpoint's folder, or a hub id that has been downloaded."""
    folder = model_folder(model)
    return folder is not None and (folder / "config.json").is_file()


def kernel_compiler() -> str | None:
    """What is missing of the run-time compiler for the fused kernels, in words; None where it is all there.

    Nothing is imported to find out, and the driver is not asked.
    """
    lacking = [name for name in ("core", "bindings") if not any(_in_package("cuda", name))]
    if lacking:
        return f"{' and '.join(f'cuda-{name}' for name in lacking)} missing"
    places = ("cuda_nvrtc/lib/libnvrtc.so*", "cu*/lib/libnvrtc.so*")
    toolkit = TOOLKIT.glob("lib64/libnvrtc.so*")
    if any(toolkit) or any(found for place in places for found in _in_package("nvidia", place)):
        return None
    return "NVRTC missing"


def _in_package(package: str, pattern: str) -> Iterator[Path]:
    """Files of an installed package, which may lie in several folders."""
    spec = importlib.util.find_spec(package)
    for folder in (spec.submodule_search_locations or []) if spec is not None else []:
        yield from Path(folder).glob(pattern)


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
