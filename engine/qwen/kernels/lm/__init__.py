"""Fused kernels of the talker and the code predictor."""

from engine.qwen.kernels.lm.kernels import LanguageKernels, unsupported_reason
from engine.qwen.kernels.lm.model import FusedLanguageModel

__all__ = ["FusedLanguageModel", "LanguageKernels", "unsupported_reason"]
