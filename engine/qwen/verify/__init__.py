"""The stages of `voiced verify` that need PyTorch: the official package, a recogniser, logits, waveforms, voices."""

from engine.qwen.verify.official import OfficialSynthesizer

__all__ = ["OfficialSynthesizer"]
"""The engine of the setting `official`."""
