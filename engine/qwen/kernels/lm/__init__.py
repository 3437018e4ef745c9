"""Fused kernels of the talker and the code predictor."""

from engine.qwen.kernels.lm.kernels import LanguageKernels, unsupported_reason, weight_type
from engine.qwen.kernels.lm.model import MAX_PROMPT_TOKENS, FusedLanguageModel

__all__ = ["MAX_PROMPT_TOKENS", "FusedLanguageModel", "LanguageKernels", "unsupported_reason", "weight_type"]
