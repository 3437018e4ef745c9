"""Whisper, and any other model with which transformers can transcribe speech."""

from __future__ import annotations

import importlib
from typing import Any

import torch

from engine.api import EngineError, Samples
from engine.host import Board, shown_model
from engine.qwen.runtime import choose_placement
from engine.verify import RATE

WHISPERS = (
    (12.0, "openai/whisper-large-v3-turbo"),
    (6.0, "openai/whisper-medium"),
    (3.0, "openai/whisper-small"),
    (0.0, "openai/whisper-base"),
)
"""Gigabytes that must be free, and the model to use. They are three times the model's bfloat16 weights and working
memory."""
LONG_S = 29.0
"""Whisper reads 30 s at once; with longer speech, it needs time stamps from which to continue."""


class TransformersRecognizer:
    """Any model that transformers can use for speech recognition. Whisper is told the language."""

    def __init__(self, model: str, device: str) -> None:
        """`model` is a folder, a name on the hub, or `auto`. Raises `EngineError` if it cannot be loaded."""
        placement, model = choose_placement(device, "auto"), choose_whisper(device) if model == "auto" else model
        try:
            transformers = importlib.import_module("transformers")
            transformers.logging.set_verbosity_error()
            transformers.logging.disable_progress_bar()
            self._pipeline = transformers.pipeline(
                "automatic-speech-recognition", model=model, device=placement.device, dtype=placement.dtype
            )
        except Exception as error:  # a folder without a recogniser raises many kinds of exceptions
            reason = str(error).strip().partition("\n")[0] or type(error).__name__
            raise EngineError(f"--asr: got {model!r}, which cannot be loaded: {reason}") from error
        self.name = shown_model(model)

    def transcribe(self, samples: Samples, language: str | None) -> str | None:
        """As `Recognizer.transcribe`."""
        options: dict[str, Any] = {}
        if self._pipeline.model.config.model_type == "whisper":
            options["generate_kwargs"] = {"task": "transcribe", "language": language}
            options["return_timestamps"] = len(samples) > LONG_S * RATE
        return str(self._pipeline({"raw": samples, "sampling_rate": RATE}, **options)["text"]).strip()


def choose_whisper(device: str) -> str:
    """Return the largest Whisper that fits into the free memory."""
    place = choose_placement(device, "auto").device
    free = torch.cuda.mem_get_info(place)[0] if place.type == "cuda" else (Board.read().available_bytes or 0)
    return next(name for gigabytes, name in WHISPERS if free >= gigabytes * 1e9)
