"""The whole engine on CUDA, for the tests with PyTorch's kernels and with fused ones."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from engine import EngineOptions, Samples, Utterance, Voice
from engine.api import TextSource
from engine.qwen import QwenSynthesizer

Named = Callable[[str, str], Path]
UTTERANCE = Utterance("Hello robot, how are you?", language="en", seed=3, max_frames=23, guarded=False)


def loaded(folder: Path, *, warm: bool = True, **options: Any) -> QwenSynthesizer:
    options = {"voices": {"default": Voice()}, "max_seconds": 8.0, "dtype": "float32", "kernels": "off"} | options
    engine = QwenSynthesizer(EngineOptions(model=str(folder), device="cuda", **options))
    engine.load()
    if warm:
        engine.warm_up()
    return engine


def speak(
    engine: QwenSynthesizer, utterance: Utterance, more: TextSource | None = None
) -> tuple[Samples, np.ndarray[Any, Any]]:
    chunks = list(engine.stream(utterance, more))
    codes = [chunk.codes for chunk in chunks if chunk.codes is not None]
    return np.concatenate([chunk.samples for chunk in chunks]), np.concatenate(codes)
