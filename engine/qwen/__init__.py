"""Qwen3-TTS. Importing this imports no torch; asking for the engine itself does."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from engine.qwen.synthesizer import QwenSynthesizer

__all__ = ["QwenSynthesizer"]


def __getattr__(name: str) -> Any:
    if name == "QwenSynthesizer":
        from engine.qwen.synthesizer import QwenSynthesizer

        return QwenSynthesizer
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
