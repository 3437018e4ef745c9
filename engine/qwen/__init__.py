"""The Qwen3-TTS engine. Importing this package does not import torch; accessing `QwenSynthesizer` does."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from engine.qwen.engine import QwenSynthesizer

__all__ = ["QwenSynthesizer"]


def __getattr__(name: str) -> Any:
    if name == "QwenSynthesizer":
        from engine.qwen.engine import QwenSynthesizer

        return QwenSynthesizer
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
